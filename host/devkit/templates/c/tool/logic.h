// The logic of the plugin. It does not use the host, so it can be tested directly.

#include <stdbool.h>

// Whether the text is one word of letters and digits. Bytes beyond ASCII count as letters.
bool is_word(const char *text);

// Returns the number of times that the word occurs in the text. Upper and lower case are the same.
int count(const char *text, const char *word);
