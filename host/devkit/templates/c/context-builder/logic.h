// The logic of the plugin. It does not use the host, so it can be tested directly.

#include <stddef.h>

// A section of the prompt. Its text is the same in every turn, so that providers can cache the prompt.
extern const char ANSWERING[];

// Returns a sentence that names the reader of the answer. The caller must free it.
char *reader(const char *user, size_t length);
