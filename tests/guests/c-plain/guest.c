// A component in C with its own world. It exports plain functions with a record, a variant and a result.

#include "words.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_space(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\t'; }

// Finds the next word at or after `*at`. Returns false if there is none.
static bool next_word(const words_string_t *text, size_t *at, words_string_t *word) {
    while (*at < text->len && is_space(text->ptr[*at])) *at += 1;
    size_t start = *at;
    while (*at < text->len && !is_space(text->ptr[*at])) *at += 1;
    word->ptr = text->ptr + start;
    word->len = *at - start;
    return word->len > 0;
}

// The caller frees returned strings, so return a copy.
static words_string_t copied(const words_string_t *text) {
    words_string_t copy = {malloc(text->len), text->len};
    memcpy(copy.ptr, text->ptr, text->len);
    return copy;
}

void exports_guests_words_text_count(words_string_t *text, exports_guests_words_text_counted_t *ret) {
    words_string_t word, longest = {NULL, 0};
    size_t at = 0;
    ret->words = 0;
    while (next_word(text, &at, &word)) {
        ret->words += 1;
        if (word.len > longest.len) longest = word;
    }
    ret->longest.is_some = longest.len > 0;
    if (ret->longest.is_some) ret->longest.val = copied(&longest);
}

bool exports_guests_words_text_pick(words_string_t *text, exports_guests_words_text_choice_t *which,
                                    words_list_string_t *ret, words_string_t *err) {
    words_string_t word;
    size_t at = 0, word_count = 0;
    while (next_word(text, &at, &word)) word_count += 1;
    size_t wanted = which->tag == EXPORTS_GUESTS_WORDS_TEXT_CHOICE_WHOLE ? word_count : which->val.first;
    if (wanted > word_count) {
        char message[64];
        snprintf(message, sizeof message, "there are only %zu words", word_count);
        words_string_dup(err, message);
        return false;
    }
    ret->ptr = calloc(wanted, sizeof *ret->ptr);
    ret->len = wanted;
    at = 0;
    for (size_t index = 0; index < wanted && next_word(text, &at, &word); index++) ret->ptr[index] = copied(&word);
    return true;
}

void exports_words_shout(words_string_t *text, words_string_t *ret) {
    ret->len = text->len + 1;
    ret->ptr = malloc(ret->len);
    for (size_t index = 0; index < text->len; index++) ret->ptr[index] = (uint8_t)toupper(text->ptr[index]);
    ret->ptr[text->len] = '!';
}
