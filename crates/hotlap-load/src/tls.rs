//! TLS by rustls: bytes from the wire in, plain bytes out, and the reverse; no sockets.

use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::plan::{PlanError, Tls};
use crate::session::Error;

/// What all connections of a load share.
#[derive(Debug, Clone)]
pub struct Secure {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Secure {
    /// Trusts what the system trusts. No session is resumed: every handshake is a full one, so that
    /// they can be compared.
    ///
    /// # Errors
    /// A name that no certificate can carry, or no certificates to trust.
    pub fn new(tls: &Tls) -> Result<Self, Error> {
        let name = ServerName::try_from(tls.server_name.clone()).map_err(|_| {
            PlanError::OutOfRange(format!("{:?} is no name for a certificate", tls.server_name))
        })?;
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = if tls.insecure {
            Arc::new(TakesAny(provider.clone()))
        } else {
            let built =
                WebPkiServerVerifier::builder_with_provider(roots()?, provider.clone()).build();
            built.map_err(|e| system("trust the system's certificates", e))?
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| system("set up TLS", e))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), name })
    }

    /// A new connection's side of it; `None` when the library refuses.
    #[must_use]
    pub fn open(&self) -> Option<Box<Channel>> {
        let mut client = ClientConnection::new(self.config.clone(), self.name.clone()).ok()?;
        client.set_buffer_limit(None);
        Some(Box::new(Channel(client, false)))
    }
}

fn system(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::System { what: what.to_owned(), why: std::io::Error::other(source) }
}

/// The certificates that this system trusts, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
/// They are read once: it takes some milliseconds.
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
            what: "find the certificates that this system trusts (install ca-certificates, name \
                   a file in SSL_CERT_FILE, or use --insecure)"
                .to_owned(),
            why: why.unwrap_or_else(|| std::io::ErrorKind::NotFound.into()),
        });
    }
    Ok(ROOTS.get_or_init(|| Arc::new(store)).clone())
}

/// One connection's side of TLS, and whether the server has sent `close_notify`.
#[derive(Debug)]
pub struct Channel(ClientConnection, bool);

impl Channel {
    /// Whether the handshake is under way.
    #[must_use]
    pub fn is_shaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Whether the server has said that it sends no more (`close_notify`, RFC 8446 section 6.1).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.1
    }

    /// Takes bytes from the wire, and appends what they say to `plain`.
    ///
    /// # Errors
    /// What is wrong with them, in the library's words; an alert may be waiting to be sent.
    pub fn receive(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<(), String> {
        while !wire.is_empty() {
            self.0.read_tls(&mut wire).map_err(|e| e.to_string())?;
            let state = self.0.process_new_packets().map_err(|e| e.to_string())?;
            self.1 |= state.peer_has_closed();
            let count = state.plaintext_bytes_to_read();
            let at = plain.len();
            plain.resize(at + count, 0);
            self.0.reader().read_exact(&mut plain[at..]).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Encrypts a request.
    ///
    /// # Errors
    /// What the library refuses.
    pub fn send(&mut self, plain: &[u8]) -> Result<(), String> {
        self.0.writer().write_all(plain).map_err(|e| e.to_string())
    }

    /// Appends what must go over the wire to `wire`.
    pub fn drain(&mut self, wire: &mut Vec<u8>) {
        while self.0.wants_write() && self.0.write_tls(wire).is_ok() {}
    }
}

/// Takes any certificate, as `--insecure` says; signatures are checked still.
#[derive(Debug)]
struct TakesAny(Arc<CryptoProvider>);

impl ServerCertVerifier for TakesAny {
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
