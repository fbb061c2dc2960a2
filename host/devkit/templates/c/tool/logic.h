// The logic of the plugin. It does not use the host, so it can be tested directly.

#include <stdbool.h>
#include <stddef.h>

// Returns the decoded string at `key` of a JSON object, or NULL if there is none. The caller must free the string.
char *json_string(const char *json, size_t length, const char *key);

// Whether the text is one word of letters and digits. Bytes beyond ASCII count as letters.
bool is_word(const char *text);

// Returns the number of times that the word occurs in the text. Upper and lower case are the same.
int count(const char *text, const char *word);
