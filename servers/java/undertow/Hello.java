// Undertow without servlets: a handler that never blocks and so runs on the I/O thread.

import io.undertow.Handlers;
import io.undertow.Undertow;
import io.undertow.UndertowOptions;
import io.undertow.Version;
import io.undertow.server.HttpServerExchange;
import io.undertow.util.Headers;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

public class Hello {
    private static void answer(HttpServerExchange exchange) {
        exchange.getResponseHeaders().put(Headers.CONTENT_TYPE, "text/plain");
        exchange.getResponseSender().send("Hello, World!");
    }

    // The JDK has no keystore that reads PEM.
    private static KeyStore keyStore(Path certificate, Path key) throws Exception {
        String base64 = Files.readString(key).replaceAll("-----[^-]+-----", "");
        PrivateKey privateKey = KeyFactory.getInstance("EC").generatePrivate(
                new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(base64)));
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream in = Files.newInputStream(certificate)) {
            Certificate[] chain = CertificateFactory.getInstance("X.509")
                    .generateCertificates(in).toArray(new Certificate[0]);
            store.setKeyEntry("server", privateKey, new char[0], chain);
        }
        return store;
    }

    private static SSLContext tls(Path certificate, Path key) throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(keyStore(certificate, key), new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        return context;
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("--version")) {
            System.out.println(Version.getFullVersionString() + ", "
                    + System.getProperty("java.vm.name") + " " + Runtime.version());
            return;
        }
        Undertow.Builder builder = Undertow.builder()
                .setIoThreads(Integer.parseInt(System.getenv("CPUS")))
                .setServerOption(UndertowOptions.ENABLE_HTTP2, true)
                .setHandler(Handlers.path().addExactPath("/", Hello::answer));
        String host = System.getenv("HOST");
        int port = Integer.parseInt(System.getenv("PORT"));
        String certificate = System.getenv("TLS_CERT");
        if (certificate == null) {
            builder.addHttpListener(port, host);
        } else {
            SSLContext tls = tls(Path.of(certificate), Path.of(System.getenv("TLS_KEY")));
            builder.addHttpsListener(port, host, tls);
        }
        builder.build().start();
    }
}
