// Fields of a request that nothing uses. They are reported to the client: an HTTP server lists them in a response
// header.

#pragma once

#include "base/json_fields.h"

#include <set>
#include <string>
#include <vector>

namespace dflash {

class ignored_fields {
  public:
    // A field by its path, such as "messages[3].mood". The same field of several elements is listed once, as
    // "messages[].mood".
    void add(const std::string & path);
    void add(const std::vector<std::string> & paths);
    // Adds the members that were not taken, except those whose last name is harmless, that is, not meant for the model.
    void add_untaken(const field_reader & in, const std::set<std::string> & harmless = {});

    // In order of first appearance; visible ASCII without commas, limited in length and number.
    const std::vector<std::string> & names() const { return names_; }

  private:
    std::vector<std::string> names_;
};

}   // namespace dflash
