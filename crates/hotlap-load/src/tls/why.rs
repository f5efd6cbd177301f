//! The causes of TLS errors in words, with what to do.

use rustls::{AlertDescription, CertificateError, Error};

/// The cause, as a clause.
pub(super) fn why(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => refusal(*alert),
        Error::InvalidCertificate(wrong) => certificate(wrong),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            "the server's data is not TLS: does this port speak https?".to_owned()
        }
        Error::PeerIncompatible(_) => {
            "the server supports neither TLS 1.2 nor 1.3, or none of the offered cipher suites"
                .to_owned()
        }
        other => other.to_string(),
    }
}

/// An alert of the server (RFC 8446 section 6.2).
fn refusal(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::NoApplicationProtocol => {
            "the server does not speak the protocol that was offered (ALPN): HTTP/2 with --http2, \
             else HTTP/1.1"
        }
        AlertDescription::ProtocolVersion => "the server supports neither TLS 1.2 nor 1.3",
        AlertDescription::HandshakeFailure => {
            "the server accepts none of the offered cipher suites (--ciphers)"
        }
        AlertDescription::UnrecognisedName => {
            "the server has no certificate for this name: give another name with --sni"
        }
        AlertDescription::CertificateRequired => {
            "the server requires a client certificate: add --cert and --key"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnknownCA
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::AccessDenied => "the server refused the client's certificate",
        other => return format!("the server ended TLS with the alert {}", number(other)),
    }
    .to_owned()
}

/// The name of an alert, or its number.
fn number(alert: AlertDescription) -> String {
    alert.as_str().map_or_else(|| u8::from(alert).to_string(), str::to_owned)
}

/// What is wrong with the server's certificate (RFC 5280).
fn certificate(wrong: &CertificateError) -> String {
    let what = match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet: is this machine's clock right?"
        }
        CertificateError::Revoked => "it was revoked",
        CertificateError::UnknownIssuer => {
            "no trusted authority issued it: name its authority's certificate with --cacert"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name: give that name with --sni"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not for servers"
        }
        CertificateError::BadEncoding => "it is malformed",
        CertificateError::BadSignature => "its signature is wrong",
        // The library has no variant for this error.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is an authority's certificate, which is not for servers"
        }
        other => {
            return format!(
                "the server's certificate is not valid: {other} (--insecure accepts it)"
            );
        }
    };
    format!("the server's certificate is not valid: {what} (--insecure accepts it)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the message to each of these asked whether the port speaks https.
    #[test]
    fn causes_are_named() {
        let alert = |alert| why(&Error::AlertReceived(alert));
        assert!(alert(AlertDescription::NoApplicationProtocol).contains("(ALPN)"));
        assert_eq!(
            alert(AlertDescription::InternalError),
            "the server ended TLS with the alert InternalError"
        );
        assert_eq!(alert(AlertDescription::Unknown(99)), "the server ended TLS with the alert 99");
        let certificate = |wrong| why(&Error::InvalidCertificate(wrong));
        assert_eq!(
            certificate(CertificateError::Expired),
            "the server's certificate is not valid: it has expired (--insecure accepts it)"
        );
    }
}
