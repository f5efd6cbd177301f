//! Certificates and keys in PEM form (RFC 7468).

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificates in a PEM file, in DER, in order.
///
/// # Errors
/// There are none, or one of them is malformed.
pub fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let found: Result<Vec<CertificateDer<'_>>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("it has no certificate in PEM form".to_owned()),
        Ok(found) => Ok(found.iter().map(|der| der.to_vec()).collect()),
        Err(why) => Err(format!("its certificates cannot be read: {why}")),
    }
}

/// The first private key in a PEM file, in DER.
///
/// # Errors
/// There is none, or it is malformed.
pub fn private_key(pem: &[u8]) -> Result<Vec<u8>, String> {
    let found = PrivateKeyDer::from_pem_slice(pem);
    let found = found.map_err(|why| format!("its private key cannot be read: {why}"))?;
    Ok(found.secret_der().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Base64 of `abc`.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";

    #[test]
    fn certificates_come_in_the_order_of_the_file() {
        let two = CERTIFICATE.to_owned() + &CERTIFICATE.replace("YWJj", "ZGVm");
        assert_eq!(certificates(two.as_bytes()), Ok(vec![b"abc".to_vec(), b"def".to_vec()]));
    }

    #[test]
    fn a_file_without_what_is_sought_is_an_error() {
        let none = certificates(b"no PEM").unwrap_err();
        assert_eq!(none, "it has no certificate in PEM form");
        assert!(private_key(CERTIFICATE.as_bytes()).is_err());
        assert!(certificates(CERTIFICATE.replace("YWJj", "!").as_bytes()).is_err());
    }
}
