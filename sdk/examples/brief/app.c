// An output validator: it accepts, repairs or rejects the answer that would end a turn. A validator has no permissions.

#include "agent_host.h"

// Maximum number of words in an answer.
#define MAX_WORDS 8

static const char SPACES[] = " \t\r\n";

static int count_words(const char *text) {
    int words = 0;
    for (text += strspn(text, SPACES); *text != 0; text += strspn(text, SPACES)) {
        text += strcspn(text, SPACES);
        words++;
    }
    return words;
}

static ah_verdict validate(const ah_output *output) {
    int words = count_words(output->text);
    if (words > MAX_WORDS) {
        // The model reads this message, so the message says what is wrong, and what would be right.
        return ah_reject("", ah_format("The answer has %d words. Shorten it to at most %d words.", words, MAX_WORDS));
    }
    const char *begin = output->text + strspn(output->text, SPACES), *end = begin + strlen(begin);
    while (end > begin && strchr(SPACES, end[-1]) != NULL) end--;
    // A validator can also change an answer that it accepts.
    bool is_trimmed = begin == output->text && *end == 0;
    return is_trimmed ? ah_accept() : ah_accept_text(ah_copy(begin, (size_t)(end - begin)));
}

AH_EXPORT_OUTPUT_VALIDATOR(validate)
