// The logic of the plugin. It does not use the host, so it can be tested directly.

#include <stddef.h>

// Returns the first mark of unfinished text that the text contains, or NULL if it contains none.
const char *find_unfinished(const char *text, size_t length);
