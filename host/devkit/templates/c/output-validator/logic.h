// What the plugin does, without anything of the host: it is tested as it is.

#include <stddef.h>

// What stands in the text and shows that it is not finished; NULL: nothing.
const char *unfinished(const char *text, size_t length);
