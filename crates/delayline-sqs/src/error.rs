//! The errors of SQS, by which each SDK names its exception.

use std::fmt;

use axum::http::StatusCode;
use delayline::ErrorClass;

/// An error of SQS, with a text for the developer who reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    code: Code,
    message: String,
}

/// Defines the codes, each with its name in the JSON protocol and in the Query protocol.
macro_rules! codes {
    ($($name:ident => $json:literal, $query:literal;)*) => {
        /// The kind of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($name),*
        }

        impl Code {
            const fn names(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$name => ($json, $query)),*
                }
            }
        }
    };
}

codes! {
    AccessDenied => "com.amazon.coral.service#AccessDeniedException", "AccessDenied";
    BatchEntryIdsNotDistinct => "com.amazonaws.sqs#BatchEntryIdsNotDistinct",
        "AWS.SimpleQueueService.BatchEntryIdsNotDistinct";
    BatchRequestTooLong => "com.amazonaws.sqs#BatchRequestTooLong",
        "AWS.SimpleQueueService.BatchRequestTooLong";
    EmptyBatchRequest => "com.amazonaws.sqs#EmptyBatchRequest",
        "AWS.SimpleQueueService.EmptyBatchRequest";
    Internal => "com.amazon.coral.service#InternalFailure", "InternalFailure";
    InvalidAttributeName => "com.amazonaws.sqs#InvalidAttributeName", "InvalidAttributeName";
    InvalidAttributeValue => "com.amazonaws.sqs#InvalidAttributeValue", "InvalidAttributeValue";
    InvalidBatchEntryId => "com.amazonaws.sqs#InvalidBatchEntryId",
        "AWS.SimpleQueueService.InvalidBatchEntryId";
    InvalidClientTokenId => "com.amazon.coral.service#UnrecognizedClientException",
        "InvalidClientTokenId";
    InvalidMessageContents => "com.amazonaws.sqs#InvalidMessageContents", "InvalidMessageContents";
    InvalidParameterValue => "com.amazon.coral.service#InvalidParameterValueException",
        "InvalidParameterValue";
    MessageNotInflight => "com.amazonaws.sqs#MessageNotInflight",
        "AWS.SimpleQueueService.MessageNotInflight";
    MissingAction => "com.amazon.coral.service#UnknownOperationException",
        "UnknownOperationException";
    MissingAuthentication => "com.amazon.coral.service#MissingAuthenticationTokenException",
        "MissingAuthenticationToken";
    MissingParameter => "com.amazon.coral.service#MissingRequiredParameterException",
        "MissingParameter";
    PurgeQueueInProgress => "com.amazonaws.sqs#PurgeQueueInProgress",
        "AWS.SimpleQueueService.PurgeQueueInProgress";
    QueueDeletedRecently => "com.amazonaws.sqs#QueueDeletedRecently",
        "AWS.SimpleQueueService.QueueDeletedRecently";
    QueueDoesNotExist => "com.amazonaws.sqs#QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue";
    QueueNameExists => "com.amazonaws.sqs#QueueNameExists", "QueueAlreadyExists";
    ReceiptHandleIsInvalid => "com.amazonaws.sqs#ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid";
    RequestThrottled => "com.amazonaws.sqs#RequestThrottled", "RequestThrottled";
    ResourceNotFound => "com.amazonaws.sqs#ResourceNotFoundException",
        "ResourceNotFoundException";
    Serialization => "com.amazon.coral.service#SerializationException", "MalformedInput";
    SignatureDoesNotMatch => "com.amazon.coral.service#InvalidSignatureException",
        "SignatureDoesNotMatch";
    TooManyEntries => "com.amazonaws.sqs#TooManyEntriesInBatchRequest",
        "AWS.SimpleQueueService.TooManyEntriesInBatchRequest";
    Unavailable => "com.amazon.coral.service#ServiceUnavailableException", "ServiceUnavailable";
    UnknownOperation => "com.amazon.coral.service#UnknownOperationException", "InvalidAction";
    UnsupportedOperation => "com.amazonaws.sqs#UnsupportedOperation",
        "AWS.SimpleQueueService.UnsupportedOperation";
}

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidParameterValue, message)
    }

    /// A required parameter that the request does not have.
    pub(crate) fn missing(parameter: &str) -> Self {
        let message = format!("The request must contain the parameter {parameter}.");
        Self::new(Code::MissingParameter, message)
    }

    pub(crate) fn no_queue() -> Self {
        Self::new(Code::QueueDoesNotExist, "The specified queue does not exist.")
    }

    /// A change of settings that changes at other servers keep refusing.
    pub(crate) fn busy() -> Self {
        let why = "The queue is being changed at other servers. Repeat the request.";
        Self::new(Code::Unavailable, why)
    }

    /// An action that SQS does not have, or not at this URL.
    pub(crate) fn unknown_action(action: &str) -> Self {
        let action: String = action.chars().take(80).collect();
        let why = format!("The action {action} is not valid for this endpoint.");
        Self::new(Code::UnknownOperation, why)
    }

    /// A reply of the queue's backend that belongs to another operation, or a task that has ended.
    pub(crate) fn internal() -> Self {
        Self::new(Code::Internal, "The request failed because of an internal error.")
    }

    /// The text in the Query protocol, which has another one for a missing queue.
    pub(crate) fn query_message(&self) -> &str {
        match self.code {
            Code::QueueDoesNotExist => "The specified queue does not exist for this wsdl version.",
            _ => &self.message,
        }
    }

    /// The text.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) const fn code(&self) -> Code {
        self.code
    }

    /// The name in the JSON protocol, with its namespace.
    pub(crate) const fn json_type(&self) -> &'static str {
        self.code.names().0
    }

    /// The code in the Query protocol.
    pub(crate) const fn query_code(&self) -> &'static str {
        self.code.names().1
    }

    pub(crate) const fn status(&self) -> StatusCode {
        match self.code {
            Code::AccessDenied
            | Code::InvalidClientTokenId
            | Code::MissingAuthentication
            | Code::PurgeQueueInProgress
            | Code::SignatureDoesNotMatch => StatusCode::FORBIDDEN,
            Code::ResourceNotFound => StatusCode::NOT_FOUND,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Whether the client caused it; otherwise the SDK may repeat the request.
    pub(crate) const fn is_of_sender(&self) -> bool {
        !matches!(self.code, Code::Internal | Code::Unavailable)
    }
}

/// Only the kind of the error: details have addresses of servers, and are logged.
impl From<delayline::Error> for Error {
    fn from(error: delayline::Error) -> Self {
        if error.is_invalid() {
            return Self::value(error.to_string());
        }
        tracing::warn!(%error, "a request to the SQS endpoint failed");
        match error.class() {
            ErrorClass::Rejected => Self::internal(),
            _ => {
                let message = "The storage of the queue cannot be reached. Repeat the request.";
                Self::new(Code::Unavailable, message)
            }
        }
    }
}

impl From<delayline::Violation> for Error {
    fn from(violation: delayline::Violation) -> Self {
        Self::value(violation.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.query_code(), self.message)
    }
}

impl std::error::Error for Error {}
