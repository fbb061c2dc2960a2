// HTTP requests. The manifest must request each address: `[asks] http = ["GET https://api.example.com/v1/"]`. The host
// adds secrets that the agent grants for the destination, so that the plugin never sees them. Redirects are not
// followed. Available if the world imports `wasi:http/outgoing-handler@0.2.0`.

#ifndef AGENT_HOST_HTTP_H
#define AGENT_HOST_HTTP_H

#include "plugin.h"

#include "result.h"

#include <ctype.h>
#include <strings.h>

// The maximum size of the body of an answer in bytes. Define it before you include `agent_host.h` to change it. The
// host accepts at most 10 MiB.
#ifndef AH_MAX_BODY
#define AH_MAX_BODY (1024 * 1024)
#endif

// The largest number of headers of a request.
#define AH_MAX_HEADERS 16

// A header. The names of the headers of an answer are in lower case.
typedef struct {
    const char *name;
    const char *value;
} ah_header;

// A request. `method` is NULL for GET, and `body` is NULL for a request without a body. If `length` is 0, the body is a
// text.
typedef struct {
    const char *method;
    const char *url;
    // The last header is followed by an entry without a name.
    ah_header headers[AH_MAX_HEADERS + 1];
    const char *body;
    size_t length;
} ah_request;

// The answer to a request. `body` ends with a zero byte that `length` does not count.
typedef struct {
    int status;
    char *body;
    size_t length;
    ah_header *headers;
    size_t header_count;
    // The method and the address without its query, for messages.
    const char *request;
} ah_response;

// Returns the text in the form that a part of an address needs, for example `a%20b`.
static inline char *ah_url_encode(const char *text) {
    char *encoded = ah_allocate(strlen(text) * 3 + 1), *to = encoded;
    for (; *text != 0; text++) {
        if (isalnum((unsigned char)*text) || strchr("-_.~", *text) != NULL) *to++ = *text;
        else to += sprintf(to, "%%%02X", (unsigned char)*text);
    }
    return encoded;
}

static inline plugin_string_t ah_plugin_string(const char *text) {
    plugin_string_t copy;
    plugin_string_dup(&copy, text);
    return copy;
}

// Converts an error code of `wasi:http`.
static inline ah_result ah_http_error(const char *request, const wasi_http_types_error_code_t *code) {
    static const char *const NAMES[] = {
        [WASI_HTTP_TYPES_ERROR_CODE_DNS_TIMEOUT] = "DNS timeout",
        [WASI_HTTP_TYPES_ERROR_CODE_DNS_ERROR] = "DNS error",
        [WASI_HTTP_TYPES_ERROR_CODE_DESTINATION_NOT_FOUND] = "destination not found",
        [WASI_HTTP_TYPES_ERROR_CODE_CONNECTION_REFUSED] = "connection refused",
        [WASI_HTTP_TYPES_ERROR_CODE_CONNECTION_TERMINATED] = "connection terminated",
        [WASI_HTTP_TYPES_ERROR_CODE_CONNECTION_TIMEOUT] = "connection timeout",
        [WASI_HTTP_TYPES_ERROR_CODE_TLS_CERTIFICATE_ERROR] = "the host does not trust the server's certificate",
        [WASI_HTTP_TYPES_ERROR_CODE_HTTP_RESPONSE_TIMEOUT] = "response timeout",
    };
    const char *name = code->tag < sizeof NAMES / sizeof *NAMES ? NAMES[code->tag] : NULL;
    switch (code->tag) {
        case WASI_HTTP_TYPES_ERROR_CODE_HTTP_REQUEST_DENIED:
        case WASI_HTTP_TYPES_ERROR_CODE_DESTINATION_IP_PROHIBITED:
            return ah_denied(ah_format("the request %s is not granted", request));
        case WASI_HTTP_TYPES_ERROR_CODE_HTTP_RESPONSE_BODY_SIZE:
            return ah_failed(ah_format("the answer to %s has too many bytes", request));
        case WASI_HTTP_TYPES_ERROR_CODE_INTERNAL_ERROR:
            if (!code->val.internal_error.is_some) break;
            name = ah_copy(code->val.internal_error.val.ptr, code->val.internal_error.val.len);
    }
    if (name == NULL) name = ah_format("error %d of wasi:http", (int)code->tag);
    return ah_unavailable(ah_format("there is no answer to %s: %s", request, name));
}

// Adds the headers of a request. Returns false if the host does not accept a header.
static inline bool ah_http_add_headers(const ah_request *request, wasi_http_types_own_fields_t fields, ah_result *error) {
    for (const ah_header *header = request->headers; header->name != NULL; header++) {
        plugin_string_t name = ah_plugin_string(header->name);
        wasi_http_types_field_value_t value = {(uint8_t *)ah_copy(header->value, strlen(header->value)), strlen(header->value)};
        wasi_http_types_header_error_t reason;
        if (wasi_http_types_method_fields_append(wasi_http_types_borrow_fields(fields), &name, &value, &reason)) continue;
        *error = ah_failed(ah_format("the header `%s` cannot be sent", header->name));
        return false;
    }
    return true;
}

// Sets the method and the address of a request. Returns false if they are invalid.
static inline bool ah_http_set_address(const ah_request *request, wasi_http_types_borrow_outgoing_request_t outgoing) {
    static const char *const METHODS[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"};
    bool is_https = strncmp(request->url, "https://", 8) == 0;
    if (!is_https && strncmp(request->url, "http://", 7) != 0) return false;
    const char *authority = request->url + (is_https ? 8 : 7);
    size_t authority_length = strcspn(authority, "/?#");
    const char *path = authority + authority_length;
    plugin_string_t authority_text = ah_plugin_string(ah_copy(authority, authority_length));
    plugin_string_t path_text = ah_plugin_string(ah_format("%s%.*s", *path == '/' ? "" : "/", (int)strcspn(path, "#"), path));
    const char *name = request->method == NULL ? "GET" : request->method;
    wasi_http_types_method_t method = {.tag = WASI_HTTP_TYPES_METHOD_OTHER, .val.other = ah_plugin_string(name)};
    for (uint8_t index = 0; index < sizeof METHODS / sizeof *METHODS; index++) {
        if (strcmp(METHODS[index], name) == 0) method.tag = index;
    }
    wasi_http_types_scheme_t scheme = {.tag = is_https ? WASI_HTTP_TYPES_SCHEME_HTTPS : WASI_HTTP_TYPES_SCHEME_HTTP};
    return wasi_http_types_method_outgoing_request_set_method(outgoing, &method) &&
           wasi_http_types_method_outgoing_request_set_scheme(outgoing, &scheme) &&
           wasi_http_types_method_outgoing_request_set_authority(outgoing, &authority_text) &&
           wasi_http_types_method_outgoing_request_set_path_with_query(outgoing, &path_text);
}

// Writes the body of a request. A host may answer before it has read the complete body, so errors are ignored: the
// answer contains the reason.
static inline void ah_http_write(const ah_request *request, wasi_http_types_own_outgoing_body_t body) {
    // The host takes at most 4 KiB at once.
    static const size_t PIECE = 4096;
    size_t length = request->body == NULL ? 0 : request->length > 0 ? request->length : strlen(request->body);
    wasi_http_types_own_output_stream_t stream;
    if (!wasi_http_types_method_outgoing_body_write(wasi_http_types_borrow_outgoing_body(body), &stream)) return;
    for (size_t at = 0; at < length; at += PIECE) {
        size_t size = length - at < PIECE ? length - at : PIECE;
        plugin_list_u8_t piece = {(uint8_t *)ah_copy(request->body + at, size), size};
        wasi_io_streams_stream_error_t error;
        if (!wasi_io_streams_method_output_stream_blocking_write_and_flush(wasi_io_streams_borrow_output_stream(stream), &piece,
                                                                           &error)) {
            break;
        }
    }
    wasi_io_streams_output_stream_drop_own(stream);
    wasi_http_types_error_code_t code;
    wasi_http_types_static_outgoing_body_finish(body, NULL, &code);
}

// Reads the body of an answer. Returns false if the body is too large, or if the connection fails.
static inline bool ah_http_read_body(wasi_http_types_own_incoming_response_t incoming, ah_response *response, ah_result *error) {
    wasi_http_types_own_incoming_body_t body;
    wasi_http_types_own_input_stream_t stream;
    if (!wasi_http_types_method_incoming_response_consume(wasi_http_types_borrow_incoming_response(incoming), &body) ||
        !wasi_http_types_method_incoming_body_stream(wasi_http_types_borrow_incoming_body(body), &stream)) {
        *error = ah_unavailable(ah_format("the answer to %s has no body", response->request));
        return false;
    }
    bool is_complete = false;
    for (;;) {
        plugin_list_u8_t chunk;
        wasi_io_streams_stream_error_t failure;
        if (!wasi_io_streams_method_input_stream_blocking_read(wasi_io_streams_borrow_input_stream(stream), 65536, &chunk,
                                                               &failure)) {
            is_complete = failure.tag == WASI_IO_STREAMS_STREAM_ERROR_CLOSED;
            if (!is_complete) *error = ah_unavailable(ah_format("the answer to %s was interrupted", response->request));
            break;
        }
        if (response->length + chunk.len > AH_MAX_BODY) {
            *error = ah_failed(ah_format("the answer to %s has more than %d bytes", response->request, AH_MAX_BODY));
            break;
        }
        response->body = realloc(response->body, response->length + chunk.len + 1);
        if (response->body == NULL) abort();
        memcpy(response->body + response->length, chunk.ptr, chunk.len);
        response->length += chunk.len;
        plugin_list_u8_free(&chunk);
    }
    response->body[response->length] = 0;
    wasi_io_streams_input_stream_drop_own(stream);
    wasi_http_types_incoming_body_drop_own(body);
    return is_complete;
}

static inline void ah_http_read_headers(wasi_http_types_own_incoming_response_t incoming, ah_response *response) {
    wasi_http_types_own_headers_t fields =
        wasi_http_types_method_incoming_response_headers(wasi_http_types_borrow_incoming_response(incoming));
    wasi_http_types_list_tuple2_field_name_field_value_t found;
    wasi_http_types_method_fields_entries(wasi_http_types_borrow_fields(fields), &found);
    response->headers = ah_allocate(found.len * sizeof *response->headers);
    response->header_count = found.len;
    for (size_t index = 0; index < found.len; index++) {
        char *name = ah_copy(found.ptr[index].f0.ptr, found.ptr[index].f0.len);
        for (char *at = name; *at != 0; at++) *at = (char)tolower((unsigned char)*at);
        response->headers[index] = (ah_header){name, ah_copy(found.ptr[index].f1.ptr, found.ptr[index].f1.len)};
    }
    wasi_http_types_fields_drop_own(fields);
}

// Sends a request and waits for the complete answer. Returns NULL if there is no answer. An error status, such as 404,
// is an answer; use `ah_expect_ok` to make it an error.
static inline ah_response *ah_http_send(const ah_request *request, ah_result *error) {
    const char *method = request->method == NULL ? "GET" : request->method;
    ah_response *response = ah_allocate(sizeof *response);
    response->request = ah_format("%s %.*s", method, (int)strcspn(request->url, "?#"), request->url);
    response->body = ah_allocate(1);
    wasi_http_types_own_fields_t fields = wasi_http_types_constructor_fields();
    if (!ah_http_add_headers(request, fields, error)) return NULL;
    wasi_http_types_own_outgoing_request_t outgoing = wasi_http_types_constructor_outgoing_request(fields);
    wasi_http_types_borrow_outgoing_request_t borrowed = wasi_http_types_borrow_outgoing_request(outgoing);
    wasi_http_types_own_outgoing_body_t body;
    if (!ah_http_set_address(request, borrowed) || !wasi_http_types_method_outgoing_request_body(borrowed, &body)) {
        *error = ah_invalid("/url", ah_format("`%s` is not an http or https address", request->url));
        return NULL;
    }
    wasi_http_outgoing_handler_own_future_incoming_response_t pending;
    wasi_http_types_error_code_t code;
    if (!wasi_http_outgoing_handler_handle(outgoing, NULL, &pending, &code)) {
        *error = ah_http_error(response->request, &code);
        return NULL;
    }
    ah_http_write(request, body);
    wasi_http_types_borrow_future_incoming_response_t waiting = wasi_http_types_borrow_future_incoming_response(pending);
    wasi_io_poll_own_pollable_t ready = wasi_http_types_method_future_incoming_response_subscribe(waiting);
    wasi_io_poll_method_pollable_block(wasi_io_poll_borrow_pollable(ready));
    wasi_io_poll_pollable_drop_own(ready);
    wasi_http_types_result_result_own_incoming_response_error_code_void_t answer;
    bool is_there = wasi_http_types_method_future_incoming_response_get(waiting, &answer) && !answer.is_err;
    wasi_http_types_future_incoming_response_drop_own(pending);
    if (!is_there || answer.val.ok.is_err) {
        *error = is_there ? ah_http_error(response->request, &answer.val.ok.val.err)
                          : ah_unavailable(ah_format("the answer to %s is missing", response->request));
        return NULL;
    }
    wasi_http_types_own_incoming_response_t incoming = answer.val.ok.val.ok;
    response->status = wasi_http_types_method_incoming_response_status(wasi_http_types_borrow_incoming_response(incoming));
    ah_http_read_headers(incoming, response);
    bool is_complete = ah_http_read_body(incoming, response, error);
    wasi_http_types_incoming_response_drop_own(incoming);
    return is_complete ? response : NULL;
}

// Sends a GET request.
static inline ah_response *ah_http_get(const char *url, ah_result *error) {
    return ah_http_send(&(ah_request){.url = url}, error);
}

// Sends a POST request with a JSON body.
static inline ah_response *ah_http_post(const char *url, const char *json, ah_result *error) {
    ah_request request = {.method = "POST", .url = url, .headers = {{"content-type", "application/json"}}, .body = json};
    return ah_http_send(&request, error);
}

// Returns the value of the first header with this name, or NULL if there is none.
static inline const char *ah_response_header(const ah_response *response, const char *name) {
    for (size_t index = 0; index < response->header_count; index++) {
        if (strcasecmp(response->headers[index].name, name) == 0) return response->headers[index].value;
    }
    return NULL;
}

// Returns true if the status is 200 to 299. Otherwise, writes the error that fits the status to `*error`: *not found*,
// *denied*, *unavailable*, which the host may repeat, or *failed*.
static inline bool ah_expect_ok(const ah_response *response, ah_result *error) {
    int status = response->status;
    if (status >= 200 && status < 300) return true;
    char *message = ah_format("%s was answered with the status %d", response->request, status);
    // The beginning of the body often contains the reason.
    const char *body = response->body + strspn(response->body, " \t\r\n");
    if (*body != 0) ah_append(&message, ": %.500s", body);
    const char *seconds = ah_response_header(response, "retry-after");
    if (status == 404 || status == 410) *error = ah_not_found(message);
    else if (status == 401 || status == 403) *error = ah_denied(message);
    else if (status != 429 && status < 500) *error = ah_failed(message);
    else *error = ah_unavailable_for(message, seconds == NULL ? 0 : (uint32_t)strtoul(seconds, NULL, 10) * 1000);
    return false;
}

#endif
