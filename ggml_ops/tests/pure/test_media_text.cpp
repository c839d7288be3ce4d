// Positions of texts with media, and the numbers of media.

#include "media/media_table.h"
#include "media/media_text.h"

#include "check.h"

#include <stdexcept>
#include <string>

using namespace dflash;

// 3 tokens, an image of 2 x 4 rows with M-RoPE, 2 tokens, 3 rows of audio, 2 tokens.
static media_layout image_and_audio() {
    return media_layout({ { 3, -2, { 8, 4, false } }, { 13, -3, { 3, 3, true } } });
}

static void positions_jump_behind_an_image() {
    const media_layout media  = image_and_audio();
    const int32_t      want[] = { 0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 7, 8, 9, 10, 11, 12, 13 };
    for (int32_t i = 0; i < 18; ++i) {
        CHECK(media.position(i) == want[i]);
    }
    const token_positions tokens = media.positions(18);
    CHECK(tokens.at == std::vector<int32_t>(std::begin(want), std::end(want)));
    CHECK(tokens.is_text[2] && !tokens.is_text[3] && !tokens.is_text[10] && tokens.is_text[11] && !tokens.is_text[15]);
}

static void a_position_has_its_first_tokens() {
    const media_layout media = image_and_audio();
    for (int32_t pos = 0; pos <= 13; ++pos) {
        const int32_t n = media.tokens_before(pos);
        CHECK(media.position(n) >= pos && (n == 0 || n == 3 || media.position(n - 1) < pos || pos == 3));
    }
    CHECK(media.tokens_before(5) == 11);   // within the image: behind it
    CHECK(media_layout().tokens_before(5) == 5);
}

static void a_medium_stays_whole() {
    const media_layout media = image_and_audio();
    CHECK(media.whole(3) == 3 && media.whole(4) == 3 && media.whole(10) == 3 && media.whole(11) == 11);
    CHECK(media.whole(14) == 13 && media.whole(16) == 16 && media.whole(0) == 0);
    CHECK(!media.at(2) && media.at(3)->token == -2 && media.at(10)->token == -2 && !media.at(11));
    CHECK(media.next(0) == 3 && media.next(5) == 3 && media.next(11) == 13 && media.next(16) == INT32_MAX);
    CHECK(media_layout().next(0) == INT32_MAX && media_layout().position(7) == 7 && media_layout().whole(7) == 7);
}

static std::string refusal(const media_table & table, const std::vector<int32_t> & tokens) {
    try {
        table.layout(tokens);
    } catch (const std::runtime_error & e) {
        return e.what();
    }
    return "";
}

static void equal_media_have_one_number() {
    media_table table;
    medium_key  image, other;
    image.size      = { 2, 1, false };
    other           = image;
    other.hash[31]  = 1;
    const int32_t a = media_token(table.number(image)), b = media_token(table.number(other));
    CHECK(a == -2 && b == -3 && media_token(table.number(image)) == a);
    CHECK(table.knows(a) && !table.knows(-4) && !table.knows(-1) && !table.knows(0));
    CHECK(table.key(b).hash[31] == 1);

    const media_layout media = table.layout({ 5, a, a, a, a, b, b, 6, a });   // the same image twice; the last is cut
    CHECK(media.spans().size() == 4 && media.spans()[1].begin == 3 && media.spans()[3].end() == 10);
    CHECK(refusal(table, { 5, -9 }).find("no medium") != std::string::npos);
    CHECK(refusal(table, { a, 5 }).find("too early") != std::string::npos);
    CHECK(refusal(table, { -1 }).find("no medium") != std::string::npos);
}

int main() {
    positions_jump_behind_an_image();
    a_position_has_its_first_tokens();
    a_medium_stays_whole();
    equal_media_have_one_number();
    return TEST_RESULT;
}
