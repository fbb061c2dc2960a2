// What the plugin does, without anything of the host: it is tested as it is.

#include <stdbool.h>
#include <stddef.h>

// The text of a JSON object's member `key`, decoded, with a zero behind it; NULL where it has no such string. To be freed.
char *json_string(const char *json, size_t length, const char *key);

// Whether the text is one word of letters and digits. Bytes beyond ASCII count as letters.
bool is_word(const char *text);

// How often the word occurs in the text, upper and lower case alike.
int count(const char *text, const char *word);
