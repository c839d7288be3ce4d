#include "engine/prompt_media.h"

#include "media/media_encoder.h"

namespace dflash {

medium * prompt_media::at(int32_t i) const {
    const media_span * span = layout.at(i);
    return span ? media[span - layout.spans().data()].get() : nullptr;
}

void prompt_media::begin(media_encoder * encoder) {
    for (const auto & m : media) {
        encoder->add_reader(*m);
    }
}

void prompt_media::end(media_encoder * encoder) {
    for (; n_read < media.size(); ++n_read) {
        encoder->remove_reader(*media[n_read]);
    }
    media.clear();
}

void prompt_media::want(media_encoder * encoder, int32_t n_past) {
    for (; n_read < media.size() && layout.spans()[n_read].end() <= n_past; ++n_read) {
        encoder->remove_reader(*media[n_read]);
    }
    for (size_t i = n_read; i < media.size(); ++i) {
        encoder->want(media[i]);
    }
}

}   // namespace dflash
