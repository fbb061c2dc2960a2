// The logic of the plugin. It does not use the host, so it can be tested directly.

#include <stdbool.h>
#include <stddef.h>

// The decoded string at `key` of a JSON object, terminated by a zero byte; NULL if there is none. The caller frees the text.
char *json_string(const char *json, size_t length, const char *key);

// Whether the text is one word of letters and digits. Bytes beyond ASCII count as letters.
bool is_word(const char *text);

// How often the word occurs in the text, ignoring case.
int count(const char *text, const char *word);
