// A servlet at the root of a context, on Jetty's own embedded server.

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
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
import org.eclipse.jetty.alpn.server.ALPNServerConnectionFactory;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.http2.server.HTTP2CServerConnectionFactory;
import org.eclipse.jetty.http2.server.HTTP2ServerConnectionFactory;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.SecureRequestCustomizer;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.SslConnectionFactory;
import org.eclipse.jetty.util.ssl.SslContextFactory;

public class Hello extends HttpServlet {
    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
            throws IOException {
        response.setContentType("text/plain;charset=utf-8");
        response.getWriter().print("Hello, World!");
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

    private static ServerConnector secure(Server server, HttpConfiguration configuration)
            throws Exception {
        configuration.addCustomizer(new SecureRequestCustomizer());
        SslContextFactory.Server context = new SslContextFactory.Server();
        context.setKeyStore(
                keyStore(Path.of(System.getenv("TLS_CERT")), Path.of(System.getenv("TLS_KEY"))));
        context.setKeyStorePassword("");
        ALPNServerConnectionFactory alpn = new ALPNServerConnectionFactory();
        alpn.setDefaultProtocol("http/1.1");
        return new ServerConnector(server,
                new SslConnectionFactory(context, alpn.getProtocol()), alpn,
                new HTTP2ServerConnectionFactory(configuration),
                new HttpConnectionFactory(configuration));
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("--version")) {
            System.out.println("Jetty " + Server.getVersion() + ", "
                    + System.getProperty("java.vm.name") + " " + Runtime.version());
            return;
        }
        Server server = new Server();
        HttpConfiguration configuration = new HttpConfiguration();
        ServerConnector connector = System.getenv("TLS_CERT") != null
                ? secure(server, configuration)
                : new ServerConnector(server, new HttpConnectionFactory(configuration),
                        new HTTP2CServerConnectionFactory(configuration));
        connector.setHost(System.getenv("HOST"));
        connector.setPort(Integer.parseInt(System.getenv("PORT")));
        server.addConnector(connector);
        server.setStopAtShutdown(true);
        ServletContextHandler context = new ServletContextHandler("/");
        // The empty pattern matches only the root. Any other path is a 404.
        context.addServlet(Hello.class, "");
        server.setHandler(context);
        server.start();
        server.join();
    }
}
