// Files in the granted trees: directories that the agent grants to the plugin. The manifest must request them: `[asks]
// files = "read"` or `"read-write"`. The functions of the C library, such as `fopen`, work in granted trees, too.

#ifndef AGENT_HOST_FILES_H
#define AGENT_HOST_FILES_H

#include "result.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wasi/api.h>

// The maximum size of a file that is read, in bytes. Define it before you include `agent_host.h` to change it.
#ifndef AH_MAX_FILE
#define AH_MAX_FILE (4 * 1024 * 1024)
#endif

// The error code of WASI for a path outside of the granted directories, which has no name in every C library.
#define AH_NOT_CAPABLE 76

// An entry of a folder.
typedef struct {
    char *name;
    bool is_folder;
} ah_entry;

// The entries of a folder, sorted by name.
typedef struct {
    ah_entry *items;
    size_t length;
} ah_entries;

// Returns the paths of the granted trees, as they are written in the grant, for example `.` or `/home/me/docs`.
static inline ah_list ah_files_trees(void) {
    ah_list trees = {NULL, 0};
    // The first three file descriptors are the standard streams.
    for (__wasi_fd_t descriptor = 3;; descriptor++) {
        __wasi_prestat_t found;
        if (__wasi_fd_prestat_get(descriptor, &found) != __WASI_ERRNO_SUCCESS) return trees;
        if (found.tag != __WASI_PREOPENTYPE_DIR) continue;
        size_t length = found.u.dir.pr_name_len;
        char *name = ah_allocate(length + 1);
        if (__wasi_fd_prestat_dir_name(descriptor, (uint8_t *)name, length) != __WASI_ERRNO_SUCCESS) return trees;
        trees.items = realloc(trees.items, (trees.length + 1) * sizeof *trees.items);
        if (trees.items == NULL) abort();
        trees.items[trees.length++] = name;
    }
}

// Returns the path without `.` and `..`, and without a slash at its end. The current directory becomes an empty text.
// Returns NULL if the path leads out of the directory in which it begins.
static inline char *ah_normalised(const char *path) {
    char *normal = ah_allocate(strlen(path) + 2), *end = normal;
    if (*path == '/') *end++ = '/';
    char *root = end;
    while (*path != 0) {
        size_t length = strcspn(path, "/");
        bool is_parent = length == 2 && path[0] == '.' && path[1] == '.', is_same = length == 1 && path[0] == '.';
        if (is_parent) {
            if (end == root) return NULL;
            while (end > root && end[-1] != '/') end--;
            if (end > root) end--;
        } else if (length > 0 && !is_same) {
            if (end > root) *end++ = '/';
            memcpy(end, path, length);
            end += length;
        }
        *end = 0;
        path += length;
        while (*path == '/') path++;
    }
    return normal;
}

// Whether a normalised path is in a tree.
static inline bool ah_is_in_tree(const char *path, const char *tree) {
    const char *root = ah_normalised(tree);
    if (root == NULL || (*root == '/') != (*path == '/')) return false;
    size_t length = strlen(root);
    // Everything below `.` or `/` is in the tree.
    if (length == 0 || strcmp(root, "/") == 0) return true;
    return strncmp(path, root, length) == 0 && (path[length] == 0 || path[length] == '/');
}

// Returns the path to pass to the C library. If the path is not in a granted tree, returns NULL and the error *denied*,
// which names the granted trees.
static inline char *ah_files_locate(const char *path, ah_result *error) {
    ah_list trees = ah_files_trees();
    char *normal = ah_normalised(path), *names = NULL;
    for (size_t index = 0; index < trees.length; index++) {
        if (normal != NULL && ah_is_in_tree(normal, trees.items[index])) return *normal == 0 ? ah_format(".") : normal;
        ah_append(&names, "%s`%s`", names == NULL ? "" : ", ", trees.items[index]);
    }
    *error = ah_denied(ah_format("`%s` is outside of the granted trees: %s", path, names == NULL ? "no file tree is granted" : names));
    return NULL;
}

// Converts an error of the C library, such as `errno`, to the error of a tool.
static inline ah_result ah_files_error(const char *path, int code) {
    switch (code) {
        case ENOENT:
            return ah_not_found(ah_format("there is no `%s`", path));
        case ENOTDIR:
            return ah_not_found(ah_format("part of `%s` is not a directory", path));
        case EACCES:
        case EPERM:
        case EROFS:
        case AH_NOT_CAPABLE:
            return ah_denied(ah_format("access to `%s` was refused: it is outside its tree, or its tree is granted for "
                                       "reading only", path));
        default:
            return ah_failed(ah_format("`%s`: %s", path, strerror(code)));
    }
}

// Reads a complete file of at most AH_MAX_FILE bytes. The bytes are followed by a zero byte that `*length` does not
// count. Returns NULL if the file cannot be read.
static inline char *ah_files_read(const char *path, size_t *length, ah_result *error) {
    const char *located = ah_files_locate(path, error);
    if (located == NULL) return NULL;
    struct stat status;
    // The type is checked before the file is opened, because opening a pipe would block.
    if (stat(located, &status) != 0) {
        *error = ah_files_error(path, errno);
        return NULL;
    }
    if (!S_ISREG(status.st_mode)) {
        *error = ah_failed(ah_format("`%s` is not a regular file", path));
        return NULL;
    }
    FILE *file = fopen(located, "rb");
    if (file == NULL) {
        *error = ah_files_error(path, errno);
        return NULL;
    }
    // Some files, such as those in `/proc`, have the length 0, and can be read all the same.
    bool is_known = status.st_size > 0 && status.st_size < AH_MAX_FILE;
    size_t space = is_known ? (size_t)status.st_size : AH_MAX_FILE;
    char *data = ah_allocate(space + 2);
    // One byte more than expected tells whether the file is larger than its length says.
    *length = fread(data, 1, space + 1, file);
    int code = ferror(file) ? errno : 0;
    fclose(file);
    if (code == 0 && *length <= space) {
        data[*length] = 0;
        return data;
    }
    *error = code != 0 ? ah_files_error(path, code)
                       : ah_failed(ah_format("`%s` has more than %zu bytes", path, space));
    return NULL;
}

// Returns the position of the first byte that is not part of UTF-8 text, or `length`.
static inline size_t ah_valid_utf8(const char *text, size_t length) {
    static const unsigned SMALLEST[] = {0, 0x80, 0x800, 0x10000};
    for (size_t at = 0; at < length;) {
        unsigned char first = (unsigned char)text[at];
        int more = first < 0x80 ? 0 : first < 0xC2 ? -1 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF5 ? 3 : -1;
        if (more < 0 || at + (size_t)more >= length) return at;
        unsigned code = more == 0 ? first : first & (0x3Fu >> more);
        for (int index = 1; index <= more; index++) {
            unsigned char byte = (unsigned char)text[at + (size_t)index];
            if ((byte & 0xC0) != 0x80) return at;
            code = code << 6 | (byte & 0x3F);
        }
        if (code < SMALLEST[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return at;
        at += (size_t)more + 1;
    }
    return length;
}

// Reads a complete UTF-8 text of at most AH_MAX_FILE bytes. Returns NULL if the file cannot be read.
static inline char *ah_files_read_text(const char *path, ah_result *error) {
    size_t length, valid;
    char *text = ah_files_read(path, &length, error);
    if (text == NULL || (valid = ah_valid_utf8(text, length)) == length) return text;
    *error = ah_failed(ah_format("`%s` is not UTF-8 text: byte %zu (from 0) is not part of a character", path, valid));
    return NULL;
}

// Writes a file, and replaces it if it exists.
static inline bool ah_files_write(const char *path, const void *data, size_t length, ah_result *error) {
    const char *located = ah_files_locate(path, error);
    if (located == NULL) return false;
    FILE *file = fopen(located, "wb");
    int code = file == NULL ? errno : 0;
    if (file != NULL && fwrite(data, 1, length, file) != length) code = errno;
    if (file != NULL && fclose(file) != 0 && code == 0) code = errno;
    if (code != 0) *error = ah_files_error(path, code);
    return code == 0;
}

// Writes a text to a file, and replaces the file if it exists.
static inline bool ah_files_write_text(const char *path, const char *text, ah_result *error) {
    return ah_files_write(path, text, strlen(text), error);
}

static inline int ah_compare_entries(const void *one, const void *other) {
    return strcmp(((const ah_entry *)one)->name, ((const ah_entry *)other)->name);
}

// Lists a folder. The entries are sorted by name.
static inline bool ah_files_list(const char *path, ah_entries *entries, ah_result *error) {
    *entries = (ah_entries){NULL, 0};
    const char *located = ah_files_locate(path, error);
    if (located == NULL) return false;
    DIR *folder = opendir(located);
    if (folder == NULL) {
        *error = ah_files_error(path, errno);
        return false;
    }
    for (struct dirent *found; (found = readdir(folder)) != NULL;) {
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0) continue;
        entries->items = realloc(entries->items, (entries->length + 1) * sizeof *entries->items);
        if (entries->items == NULL) abort();
        entries->items[entries->length++] = (ah_entry){ah_format("%s", found->d_name), found->d_type == DT_DIR};
    }
    closedir(folder);
    if (entries->length > 0) qsort(entries->items, entries->length, sizeof *entries->items, ah_compare_entries);
    return true;
}

// Creates a folder.
static inline bool ah_files_create_folder(const char *path, ah_result *error) {
    const char *located = ah_files_locate(path, error);
    if (located == NULL) return false;
    if (mkdir(located, 0777) == 0) return true;
    *error = ah_files_error(path, errno);
    return false;
}

// Removes a file or an empty folder.
static inline bool ah_files_remove(const char *path, ah_result *error) {
    const char *located = ah_files_locate(path, error);
    if (located == NULL) return false;
    struct stat status;
    bool is_folder = lstat(located, &status) == 0 && S_ISDIR(status.st_mode);
    if ((is_folder ? rmdir(located) : unlink(located)) == 0) return true;
    *error = ah_files_error(path, errno);
    return false;
}

#endif
