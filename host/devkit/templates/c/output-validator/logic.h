// The logic of the plugin. It does not use the host, so it can be tested directly.

#include <stddef.h>

// The first mark of unfinished text that occurs in the text; NULL if there is none.
const char *unfinished(const char *text, size_t length);
