// Values that are kept between calls. The manifest must request them: `[asks] key_value = true`. Plugins do not share
// values, and a plugin has separate values for each agent that uses it. Available if the world imports
// `wasi:keyvalue/store@0.2.0-draft2` and `wasi:keyvalue/atomics@0.2.0-draft2`.

#ifndef AGENT_HOST_VALUES_H
#define AGENT_HOST_VALUES_H

#include "plugin.h"

#include "result.h"

// The maximum number of attempts of `ah_values_update`.
#define AH_UPDATE_ATTEMPTS 16

// A named collection of values, each stored under a key. Open it with `ah_values_open`.
typedef struct {
    wasi_keyvalue_store_own_bucket_t handle;
} ah_bucket;

static inline ah_result ah_values_error(const wasi_keyvalue_store_error_t *error) {
    switch (error->tag) {
        case WASI_KEYVALUE_STORE_ERROR_ACCESS_DENIED:
            return ah_denied("storing values is not granted");
        case WASI_KEYVALUE_STORE_ERROR_NO_SUCH_STORE:
            return ah_failed("there is no such bucket");
        default:
            return ah_failed(ah_copy(error->val.other.ptr, error->val.other.len));
    }
}

// Writes the error of the store to `*error` if the operation has failed. Returns whether it has succeeded.
static inline bool ah_values_result(bool is_done, const wasi_keyvalue_store_error_t *failure, ah_result *error) {
    if (!is_done) *error = ah_values_error(failure);
    return is_done;
}

static inline wasi_keyvalue_store_borrow_bucket_t ah_values_borrow(ah_bucket bucket) {
    return wasi_keyvalue_store_borrow_bucket(bucket.handle);
}

static inline plugin_string_t ah_values_key(const char *key) {
    plugin_string_t copy;
    plugin_string_dup(&copy, key);
    return copy;
}

// Returns the value as a text, or NULL if there is none.
static inline char *ah_values_text(const plugin_option_list_u8_t *value) {
    return value->is_some ? ah_copy(value->val.ptr, value->val.len) : NULL;
}

// Opens the bucket with this name. If there is no such bucket, it is empty.
static inline bool ah_values_open(const char *name, ah_bucket *bucket, ah_result *error) {
    plugin_string_t text = ah_values_key(name);
    wasi_keyvalue_store_error_t failure;
    return ah_values_result(wasi_keyvalue_store_open(&text, &bucket->handle, &failure), &failure, error);
}

// Reads the text that is stored under the key. `*value` becomes NULL if the key has no value.
static inline bool ah_values_get(ah_bucket bucket, const char *key, char **value, ah_result *error) {
    plugin_string_t text = ah_values_key(key);
    plugin_option_list_u8_t found = {.is_some = false};
    wasi_keyvalue_store_error_t failure;
    bool is_done = wasi_keyvalue_store_method_bucket_get(ah_values_borrow(bucket), &text, &found, &failure);
    *value = is_done ? ah_values_text(&found) : NULL;
    return ah_values_result(is_done, &failure, error);
}

// Stores a text under the key. The maximum size of a key is 1 KiB, and that of a value 1 MiB.
static inline bool ah_values_set(ah_bucket bucket, const char *key, const char *value, ah_result *error) {
    plugin_string_t text = ah_values_key(key);
    plugin_list_u8_t bytes = {(uint8_t *)ah_copy(value, strlen(value)), strlen(value)};
    wasi_keyvalue_store_error_t failure;
    bool is_done = wasi_keyvalue_store_method_bucket_set(ah_values_borrow(bucket), &text, &bytes, &failure);
    return ah_values_result(is_done, &failure, error);
}

// Removes the value of the key, if there is one.
static inline bool ah_values_delete(ah_bucket bucket, const char *key, ah_result *error) {
    plugin_string_t text = ah_values_key(key);
    wasi_keyvalue_store_error_t failure;
    bool is_done = wasi_keyvalue_store_method_bucket_delete(ah_values_borrow(bucket), &text, &failure);
    return ah_values_result(is_done, &failure, error);
}

// Lists the keys of all values, in sorted order.
static inline bool ah_values_keys(ah_bucket bucket, ah_list *keys, ah_result *error) {
    *keys = (ah_list){NULL, 0};
    wasi_keyvalue_store_key_response_t page = {.cursor.is_some = false};
    do {
        plugin_string_t cursor = page.cursor.val;
        wasi_keyvalue_store_error_t failure;
        bool is_done = wasi_keyvalue_store_method_bucket_list_keys(ah_values_borrow(bucket), page.cursor.is_some ? &cursor : NULL,
                                                                   &page, &failure);
        if (!ah_values_result(is_done, &failure, error)) return false;
        keys->items = realloc(keys->items, (keys->length + page.keys.len + 1) * sizeof *keys->items);
        if (keys->items == NULL) abort();
        for (size_t index = 0; index < page.keys.len; index++) {
            keys->items[keys->length++] = ah_copy(page.keys.ptr[index].ptr, page.keys.ptr[index].len);
        }
    } while (page.cursor.is_some);
    return true;
}

// Adds `delta` to the number that is stored under the key, and writes the sum to `*sum`. The operation is atomic. A key
// without a value has the number 0.
static inline bool ah_values_increment(ah_bucket bucket, const char *key, int64_t delta, int64_t *sum, ah_result *error) {
    plugin_string_t text = ah_values_key(key);
    wasi_keyvalue_store_error_t failure;
    return ah_values_result(wasi_keyvalue_atomics_increment(ah_values_borrow(bucket), &text, delta, sum, &failure), &failure,
                            error);
}

// Replaces the value of the key with the result of `change`, which gets the value, or NULL if there is none, and
// `data`. If another call changes the value at the same time, `change` is called again with the new value. If `change`
// returns NULL, the value stays unchanged.
static inline bool ah_values_update(ah_bucket bucket, const char *key, char *(*change)(const char *before, void *data),
                                    void *data, ah_result *error) {
    for (int attempt = 0; attempt < AH_UPDATE_ATTEMPTS; attempt++) {
        plugin_string_t text = ah_values_key(key);
        wasi_keyvalue_atomics_own_cas_t seen;
        plugin_option_list_u8_t before = {.is_some = false};
        wasi_keyvalue_store_error_t failure;
        bool is_done = wasi_keyvalue_atomics_static_cas_new(ah_values_borrow(bucket), &text, &seen, &failure) &&
                       wasi_keyvalue_atomics_method_cas_current(wasi_keyvalue_atomics_borrow_cas(seen), &before, &failure);
        if (!ah_values_result(is_done, &failure, error)) return false;
        char *after = change(ah_values_text(&before), data);
        if (after == NULL) {
            wasi_keyvalue_atomics_cas_drop_own(seen);
            return true;
        }
        plugin_list_u8_t bytes = {(uint8_t *)after, strlen(after)};
        wasi_keyvalue_atomics_cas_error_t refusal;
        if (wasi_keyvalue_atomics_swap(seen, &bytes, &refusal)) return true;
        if (refusal.tag == WASI_KEYVALUE_ATOMICS_CAS_ERROR_STORE_ERROR) {
            return ah_values_result(false, &refusal.val.store_error, error);
        }
        wasi_keyvalue_atomics_cas_drop_own(refusal.val.cas_failed);
    }
    *error = ah_unavailable(ah_format("other calls keep changing the value of `%s`", key));
    return false;
}

#endif
