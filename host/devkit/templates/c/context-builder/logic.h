// The logic of the plugin. It does not use the host, so it can be tested directly.

#include <stddef.h>

// The same text in every turn, so that prompt caches of providers work.
extern const char ANSWERING[];

// Names the reader of the answer. The caller frees the text.
char *reader(const char *user, size_t length);
