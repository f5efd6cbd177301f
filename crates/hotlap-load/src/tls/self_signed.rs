//! Self-signed certificates with an ECDSA key on the curve P-256, which every implementation of
//! TLS 1.3 must support (RFC 8446 section 9.1).
//!
//! The keys come from ring, which rustls needs anyway. The key support of rcgen itself would need
//! 17 more crates.

use rcgen::{CertificateParams, PublicKeyData, SignatureAlgorithm, SigningKey, date_time_ymd};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

/// A certificate and its private key (PKCS #8), in DER.
#[derive(Debug, Clone)]
pub struct SelfSigned {
    /// The certificate.
    pub der: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
}

/// Makes a certificate for these names and addresses. It is valid until January 1 of `until_year`.
///
/// # Errors
/// One of the names is not valid, or there is no randomness.
pub fn self_signed(names: &[&str], until_year: i32) -> Result<SelfSigned, String> {
    let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|e| e.to_string())?;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random);
    let key = Key(pair.map_err(|e| e.to_string())?);
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).map_err(|e| e.to_string())?;
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(until_year, 1, 1);
    params.serial_number = Some(1.into());
    let certificate = params.self_signed(&key).map_err(|e| e.to_string())?;
    Ok(SelfSigned { der: certificate.der().to_vec(), key: private.as_ref().to_vec() })
}

/// A key from ring that rcgen can sign with.
struct Key(EcdsaKeyPair);

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signed = self.0.sign(&SystemRandom::new(), message);
        Ok(signed.map_err(|_| rcgen::Error::RemoteKeyError)?.as_ref().to_vec())
    }
}
