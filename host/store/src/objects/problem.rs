//! Why a request to an object store failed, in words that contain no secrets.

use crate::StoreError;
use reqwest::StatusCode;
use std::error::Error;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectProblem {
    /// There is no object with this name.
    Missing,
    /// The object does not have the size or the bytes that it must have.
    Changed,
    /// The request may succeed later.
    Temporary(String),
    /// The request cannot succeed before somebody changes something.
    Refused(String),
}

impl ObjectProblem {
    pub(crate) fn into_error(self, store: &str) -> StoreError {
        let problem = match self {
            Self::Missing => "an object is missing".to_owned(),
            Self::Changed => "an object has other bytes than were written".to_owned(),
            Self::Temporary(problem) | Self::Refused(problem) => problem,
        };
        StoreError::ObjectStore { store: store.to_owned(), problem }
    }

    /// Describes an answer that is not a success. `body` is the beginning of its body.
    pub(super) fn of_answer(status: StatusCode, body: &str) -> Self {
        let code = error_code(body);
        let answer = match code {
            Some(code) => format!("it answered {} {code}", status.as_u16()),
            None => format!("it answered {}", status.as_u16()),
        };
        match (status.as_u16(), code) {
            (404, Some("NoSuchBucket")) => {
                Self::Refused(format!("{answer}: check the name of the bucket, or create the bucket"))
            }
            (404, _) => Self::Missing,
            // The range is outside of the object.
            (416, _) => Self::Changed,
            (401 | 403, _) => Self::Refused(format!(
                "{answer}: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, whether this key may read, write, list and delete \
                 the objects of the bucket, and the clock of this machine"
            )),
            (408 | 425 | 429 | 500..=599, _) => {
                Self::Temporary(format!("{answer}: look at the state and the log of the object store"))
            }
            _ => Self::Refused(format!("{answer}: check AWS_ENDPOINT_URL and AWS_REGION")),
        }
    }

    /// Describes a request without an answer. The address of the request, which contains a signature, is left out.
    pub(super) fn of_transport(error: reqwest::Error, endpoint: &str) -> Self {
        let error = error.without_url();
        if error.is_timeout() {
            return Self::Temporary(format!("the server {endpoint} does not answer in time: check it and the network"));
        }
        let mut cause: &dyn Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let advice = "check AWS_ENDPOINT_URL, the server and the network";
        Self::Temporary(format!("the connection to {endpoint} failed ({cause}): {advice}"))
    }
}

/// Finds the code of an error in an answer, such as `AccessDenied`. Other parts of the answer may contain keys.
fn error_code(body: &str) -> Option<&str> {
    let (_, rest) = body.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (code.len() <= 64 && !code.is_empty() && code.chars().all(|c| c.is_ascii_alphanumeric())).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: an error names what to do, and repeats nothing of the answer but its code.
    #[test]
    fn f1_answers_of_object_stores_are_described_without_their_content() {
        let of = |status: u16, body: &str| ObjectProblem::of_answer(StatusCode::from_u16(status).unwrap(), body);
        let denied =
            of(403, "<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>s3cret</AWSAccessKeyId></Error>");
        let ObjectProblem::Refused(problem) = &denied else { panic!("{denied:?}") };
        assert!(problem.contains("403 SignatureDoesNotMatch") && problem.contains("AWS_ACCESS_KEY_ID"), "{problem}");
        assert!(!problem.contains("s3cret"), "{problem}");
        assert_eq!(of(404, "<Code>NoSuchKey</Code>"), ObjectProblem::Missing);
        assert!(matches!(of(404, "<Code>NoSuchBucket</Code>"), ObjectProblem::Refused(_)));
        for status in [429, 500, 503] {
            assert!(matches!(of(status, ""), ObjectProblem::Temporary(_)), "{status}");
        }
        assert!(matches!(of(301, "<Code><script>"), ObjectProblem::Refused(problem) if !problem.contains("script")));
    }
}
