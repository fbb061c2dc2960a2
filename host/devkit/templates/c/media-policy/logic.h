// The logic of the plugin. It does not use the host, so it can be tested directly.

#include <stddef.h>
#include <stdint.h>

// The text to send instead of a medium; NULL to send the medium. The caller frees the text.
char *line(const char *name, size_t length, uint32_t seen_count);
