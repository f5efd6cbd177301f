//! TLS with rustls, without sockets. Bytes from the wire become plain bytes, and vice versa.

mod self_signed;

pub use self_signed::{SelfSigned, self_signed};

use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, CipherSuite, ClientConfig, ClientConnection,
    DigitallySignedStruct, HandshakeKind, RootCertStore, SignatureScheme,
};

use crate::outcome::Negotiated;
use crate::plan::{PlanError, Protocol, Target};
use crate::shared::Error;

/// The ALPN name of HTTP/2 over TLS (RFC 9113 section 3.2).
const ALPN_HTTP2: &[u8] = b"h2";

/// The number of sessions to keep for resumption. A load has one server, and rustls keeps at most 8
/// tickets for each server.
const SESSIONS: usize = 8;

/// The cipher suites of TLS 1.3 and 1.2 with AES-128 in Galois/Counter Mode.
pub const AES_128_GCM: [&str; 3] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
];

/// The TLS settings of all connections of a load.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConfig {
    /// Returns the settings for connections to a target. Returns `None` if the target does not use
    /// TLS.
    ///
    /// # Errors
    /// The server name, a cipher suite, a certificate or a key cannot be used, or the system has no
    /// trusted certificates.
    pub fn of(target: &Target) -> Result<Option<Self>, Error> {
        let Some(tls) = &target.tls else { return Ok(None) };
        let name = ServerName::try_from(tls.server_name.clone()).map_err(|_| {
            PlanError::OutOfRange(format!(
                "{:?} is not a valid server name for TLS: give a host name with --sni",
                tls.server_name
            ))
        })?;
        let provider = Arc::new(provider(&tls.ciphers)?);
        let verifier: Arc<dyn ServerCertVerifier> = if tls.insecure {
            Arc::new(AcceptAny(provider.clone()))
        } else {
            let roots = match tls.authorities.is_empty() {
                true => roots()?,
                false => Arc::new(authorities(&tls.authorities)?),
            };
            let built =
                WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            built.map_err(|e| system("use the trusted certificates", e))?
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| system("set up TLS", e))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = identity.chain.iter().map(|der| CertificateDer::from(der.clone()));
                let key = PrivateKeyDer::try_from(identity.key.clone());
                let key = key.map_err(|why| {
                    PlanError::OutOfRange(format!("the private key cannot be used: {why}"))
                })?;
                let config = builder.with_client_auth_cert(chain.collect(), key);
                config.map_err(|e| system("use the client's certificate", e))?
            }
        };
        config.resumption = match tls.resumes {
            true => Resumption::in_memory_sessions(SESSIONS),
            false => Resumption::disabled(),
        };
        config.alpn_protocols = vec![match target.protocol {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::Http2 => ALPN_HTTP2.to_vec(),
        }];
        Ok(Some(Self { config: Arc::new(config), name }))
    }

    /// Starts TLS for a new connection. Returns `None` if rustls refuses.
    pub fn connect(&self) -> Option<Box<TlsConnection>> {
        let mut client = ClientConnection::new(self.config.clone(), self.name.clone()).ok()?;
        client.set_buffer_limit(None);
        Some(Box::new(TlsConnection { client, peer_has_closed: false }))
    }
}

/// Returns a provider that offers these cipher suites, or all if none are named.
fn provider(ciphers: &[String]) -> Result<CryptoProvider, PlanError> {
    let mut provider = ring::default_provider();
    let known: Vec<String> =
        provider.cipher_suites.iter().map(|suite| name_of(suite.suite())).collect();
    if let Some(unknown) = ciphers.iter().find(|name| !known.contains(name)) {
        return Err(PlanError::OutOfRange(format!(
            "unknown cipher suite {unknown:?}: choose from {}",
            known.join(", ")
        )));
    }
    provider
        .cipher_suites
        .retain(|suite| ciphers.is_empty() || ciphers.contains(&name_of(suite.suite())));
    Ok(provider)
}

/// Returns the name of a cipher suite in the IANA registry. For TLS 1.3, rustls uses other names.
fn name_of(suite: CipherSuite) -> String {
    suite.as_str().unwrap_or("unknown").replace("TLS13_", "TLS_")
}

fn system(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::System { what: what.to_owned(), why: std::io::Error::other(source) }
}

/// Returns a store of these certificates, which are trusted instead of the system's.
fn authorities(certificates: &[Vec<u8>]) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for der in certificates {
        store
            .add(CertificateDer::from(der.clone()))
            .map_err(|e| system("trust the given certificate", e))?;
    }
    Ok(store)
}

/// Returns the certificates that the system trusts, or the certificates in `SSL_CERT_FILE` and
/// `SSL_CERT_DIR`. The certificates are read only once, because reading takes some milliseconds.
fn roots() -> Result<Arc<RootCertStore>, Error> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = found.errors.into_iter().next().map(std::io::Error::other);
        return Err(Error::System {
            what: "find this system's trusted certificates (install ca-certificates, set \
                   SSL_CERT_FILE, or use --insecure)"
                .to_owned(),
            why: why.unwrap_or_else(|| std::io::ErrorKind::NotFound.into()),
        });
    }
    Ok(ROOTS.get_or_init(|| Arc::new(store)).clone())
}

/// The client side of TLS on one connection.
#[derive(Debug)]
pub struct TlsConnection {
    client: ClientConnection,
    peer_has_closed: bool,
}

impl TlsConnection {
    /// Returns whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.client.is_handshaking()
    }

    /// Returns whether the server has agreed to HTTP/2.
    pub fn speaks_http2(&self) -> bool {
        self.client.alpn_protocol() == Some(ALPN_HTTP2)
    }

    /// Returns what the handshake has negotiated. Returns `None` before the end of the handshake.
    pub fn negotiated(&self) -> Option<Negotiated> {
        let version = self.client.protocol_version()?;
        let cipher = name_of(self.client.negotiated_cipher_suite()?.suite());
        let version = version.as_str().unwrap_or("unknown").replace("TLSv1_", "TLS 1.");
        Some(Negotiated { version, cipher })
    }

    /// Returns whether the server has sent `close_notify`, after which it sends no more data (RFC
    /// 8446 section 6.1).
    pub fn peer_has_closed(&self) -> bool {
        self.peer_has_closed
    }

    /// Returns whether the handshake resumed an earlier session.
    pub fn has_resumed(&self) -> bool {
        self.client.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Takes bytes from the wire, and appends the decrypted data to `plain`. Bytes after the
    /// server's `close_notify` are ignored (RFC 8446 section 6.1).
    ///
    /// # Errors
    /// The bytes are not valid, and the text says why. An alert may have to be sent then.
    pub fn receive(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<(), String> {
        // After close_notify, rustls consumes no bytes.
        while !wire.is_empty() && !self.peer_has_closed {
            self.client.read_tls(&mut wire).map_err(|e| e.to_string())?;
            let state = self.client.process_new_packets().map_err(|e| why(&e))?;
            self.peer_has_closed |= state.peer_has_closed();
            let count = state.plaintext_bytes_to_read();
            let at = plain.len();
            plain.resize(at + count, 0);
            self.client.reader().read_exact(&mut plain[at..]).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Encrypts data to send.
    ///
    /// # Errors
    /// The data cannot be encrypted, and the text is the error of rustls.
    pub fn send(&mut self, plain: &[u8]) -> Result<(), String> {
        self.client.writer().write_all(plain).map_err(|e| e.to_string())
    }

    /// Prepares the `close_notify` that a client must send before it closes its side (RFC 8446
    /// section 6.1).
    pub fn close(&mut self) {
        self.client.send_close_notify();
    }

    /// Appends the pending bytes to `wire`.
    pub fn drain(&mut self, wire: &mut Vec<u8>) {
        while self.client.wants_write() && self.client.write_tls(wire).is_ok() {}
    }
}

/// A verifier that accepts any certificate, for `--insecure`. Signatures are still verified.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the certificates in a PEM file, in DER, in order.
///
/// # Errors
/// The file has no certificate, or a certificate is malformed.
pub fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let found: Result<Vec<CertificateDer<'_>>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("the file has no certificate in PEM form".to_owned()),
        Ok(found) => Ok(found.iter().map(|der| der.to_vec()).collect()),
        Err(why) => Err(format!("the certificates cannot be read: {why}")),
    }
}

/// Returns the first private key in a PEM file, in DER.
///
/// # Errors
/// The file has no private key, or the key is malformed.
pub fn private_key(pem: &[u8]) -> Result<Vec<u8>, String> {
    let found = PrivateKeyDer::from_pem_slice(pem);
    let found = found.map_err(|why| format!("the private key cannot be read: {why}"))?;
    Ok(found.secret_der().to_vec())
}

/// Returns the cause of an error as a clause.
fn why(error: &rustls::Error) -> String {
    match error {
        rustls::Error::AlertReceived(alert) => refusal(*alert),
        rustls::Error::InvalidCertificate(wrong) => certificate(wrong),
        rustls::Error::InvalidMessage(_) | rustls::Error::InappropriateMessage { .. } => {
            "the server did not respond with valid TLS: does this port speak https?".to_owned()
        }
        rustls::Error::PeerIncompatible(_) => {
            "the server's TLS is incompatible with hotlap's. Possibly the server supports neither \
             TLS 1.2 nor 1.3, or none of the offered cipher suites"
                .to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns the meaning of an alert from the server (RFC 8446 section 6.2).
fn refusal(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::NoApplicationProtocol => {
            "the server does not speak the protocol of this load, which hotlap offered (ALPN): h2 \
             for HTTP/2, and otherwise http/1.1"
        }
        AlertDescription::ProtocolVersion => "the server supports neither TLS 1.2 nor 1.3",
        AlertDescription::HandshakeFailure => {
            "the server refused the handshake. Possibly it accepts none of the cipher suites that \
             hotlap offered (--ciphers), or requires a client certificate (--cert and --key)"
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
        | AlertDescription::AccessDenied => {
            "the server refused the client's certificate, or requires one (--cert and --key)"
        }
        other => return format!("the server ended TLS with the alert {}", number(other)),
    }
    .to_owned()
}

/// Returns the name of an alert, or the number of an alert without a name.
fn number(alert: AlertDescription) -> String {
    alert.as_str().map_or_else(|| u8::from(alert).to_string(), str::to_owned)
}

/// Returns what is wrong with the server's certificate (RFC 5280).
fn certificate(wrong: &CertificateError) -> String {
    let what = match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet, unless this machine's clock is wrong"
        }
        CertificateError::Revoked => "was revoked",
        CertificateError::UnknownIssuer => {
            "comes from an authority that is not trusted: trust the authority with --cacert"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is for another name: give that name with --sni"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for servers"
        }
        // With --insecure, a certificate must still be readable and sign the handshake.
        CertificateError::BadEncoding => return "the server's certificate is malformed".to_owned(),
        CertificateError::BadSignature => {
            return "a signature with the server's certificate is wrong".to_owned();
        }
        // The library has no variant for this error.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "belongs to an authority and is not for servers"
        }
        other => {
            return format!(
                "the server's certificate is not valid: {other} (--insecure may accept it)"
            );
        }
    };
    format!("the server's certificate {what} (--insecure accepts any certificate)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The base64 text decodes to `abc`.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";

    #[test]
    fn certificates_come_in_the_order_of_the_file() {
        let two = CERTIFICATE.to_owned() + &CERTIFICATE.replace("YWJj", "ZGVm");
        assert_eq!(certificates(two.as_bytes()), Ok(vec![b"abc".to_vec(), b"def".to_vec()]));
    }

    #[test]
    fn a_file_without_what_is_sought_is_an_error() {
        let none = certificates(b"no PEM").unwrap_err();
        assert_eq!(none, "the file has no certificate in PEM form");
        assert!(private_key(CERTIFICATE.as_bytes()).is_err());
        assert!(certificates(CERTIFICATE.replace("YWJj", "!").as_bytes()).is_err());
    }

    /// Regression: for each of these causes, the message asked whether the port speaks https.
    #[test]
    fn causes_are_named() {
        let alert = |alert| why(&rustls::Error::AlertReceived(alert));
        assert!(alert(AlertDescription::NoApplicationProtocol).contains("(ALPN)"));
        assert_eq!(
            alert(AlertDescription::InternalError),
            "the server ended TLS with the alert InternalError"
        );
        assert_eq!(alert(AlertDescription::Unknown(99)), "the server ended TLS with the alert 99");
        let certificate = |wrong| why(&rustls::Error::InvalidCertificate(wrong));
        assert_eq!(
            certificate(CertificateError::Expired),
            "the server's certificate has expired (--insecure accepts any certificate)"
        );
    }
}
