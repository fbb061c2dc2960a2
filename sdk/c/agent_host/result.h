// The results and errors of tools. Functions that can fail have a last parameter `ah_result *error`, to which they
// write an error that the tool can return as it is.

#ifndef AGENT_HOST_RESULT_H
#define AGENT_HOST_RESULT_H

#include "text.h"

// The kinds of errors, in the order of the contract.
typedef enum { AH_INVALID_ARGUMENTS, AH_NOT_FOUND, AH_DENIED, AH_UNAVAILABLE, AH_FAILED } ah_error_kind;

// What a result contains.
typedef enum { AH_DONE_NOTHING, AH_DONE_TEXT, AH_DONE_JSON, AH_DONE_STRUCTURED, AH_PENDING, AH_ERROR } ah_result_kind;

// An invalid value: a JSON pointer to the value, for example `/rows/3/price`, and what is wrong with the value.
typedef struct {
    const char *pointer;
    const char *message;
} ah_violation;

// The result or the error of a call. Create it with the functions below.
typedef struct {
    ah_result_kind kind;
    ah_error_kind error_kind;
    // The text for the model, the message of an error, or the event type of a request to a service.
    const char *text;
    const char *json;
    const ah_violation *violations;
    size_t violation_count;
    // Milliseconds after which an unavailable call may succeed. 0 means that the host decides.
    uint32_t retry_after;
} ah_result;

// A result without content.
static inline ah_result ah_nothing(void) { return (ah_result){.kind = AH_DONE_NOTHING}; }

// A text for the model.
static inline ah_result ah_text(const char *text) { return (ah_result){.kind = AH_DONE_TEXT, .text = text}; }

// A JSON value. If the tool has a result schema, it is the machine-readable result.
static inline ah_result ah_json(const char *json) { return (ah_result){.kind = AH_DONE_JSON, .json = json}; }

// A machine-readable result, and a text for the model.
static inline ah_result ah_structured(const char *json, const char *text) {
    return (ah_result){.kind = AH_DONE_STRUCTURED, .json = json, .text = text};
}

// A request to an external service, with data in JSON. The event type must be granted, and the tool must not be
// read-only.
static inline ah_result ah_pending(const char *event_type, const char *json) {
    return (ah_result){.kind = AH_PENDING, .text = event_type, .json = json};
}

static inline ah_result ah_error(ah_error_kind kind, const char *message) {
    return (ah_result){.kind = AH_ERROR, .error_kind = kind, .text = message};
}

// Several arguments are invalid.
static inline ah_result ah_invalid_all(const ah_violation *violations, size_t count) {
    ah_result result = ah_error(AH_INVALID_ARGUMENTS, "the arguments are invalid");
    result.violations = violations;
    result.violation_count = count;
    return result;
}

// An argument is invalid. `pointer` is a JSON pointer to the argument, for example `/word`.
static inline ah_result ah_invalid(const char *pointer, const char *message) {
    ah_violation *violation = ah_allocate(sizeof *violation);
    *violation = (ah_violation){pointer, message};
    return ah_invalid_all(violation, 1);
}

// The call refers to something that does not exist.
static inline ah_result ah_not_found(const char *message) { return ah_error(AH_NOT_FOUND, message); }

// The call is not allowed, and would fail again.
static inline ah_result ah_denied(const char *message) { return ah_error(AH_DENIED, message); }

// The call may succeed later. The host repeats calls of tools that are read-only or idempotent.
static inline ah_result ah_unavailable(const char *message) { return ah_error(AH_UNAVAILABLE, message); }

// The call may succeed after this time in milliseconds.
static inline ah_result ah_unavailable_for(const char *message, uint32_t milliseconds) {
    ah_result result = ah_unavailable(message);
    result.retry_after = milliseconds;
    return result;
}

// The call failed for another reason.
static inline ah_result ah_failed(const char *message) { return ah_error(AH_FAILED, message); }

#endif
