// What a request says and nobody heeds. Its sender is told: an HTTP server names it in a header of the answer.

#pragma once

#include "base/json_fields.h"

#include <set>
#include <string>
#include <vector>

namespace dflash {

class ignored_fields {
  public:
    // A field by its path, such as "messages[3].mood". The same one of several elements counts once, as
    // "messages[].mood".
    void add(const std::string & path);
    // The members that were not taken, but for those whose last name is harmless: meant for others than the model.
    void add_untaken(const field_reader & in, const std::set<std::string> & harmless = {});

    // In the order of their first appearance; visible ASCII without commas, of bounded length and number.
    const std::vector<std::string> & names() const { return names_; }

  private:
    std::vector<std::string> names_;
};

}   // namespace dflash
