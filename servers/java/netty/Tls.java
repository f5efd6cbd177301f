// TLS for Hello.java, with the JDK's engine: the client chooses between HTTP/2 and HTTP/1.1.

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPipeline;
import io.netty.handler.ssl.ApplicationProtocolConfig;
import io.netty.handler.ssl.ApplicationProtocolConfig.Protocol;
import io.netty.handler.ssl.ApplicationProtocolConfig.SelectedListenerFailureBehavior;
import io.netty.handler.ssl.ApplicationProtocolConfig.SelectorFailureBehavior;
import io.netty.handler.ssl.ApplicationProtocolNames;
import io.netty.handler.ssl.ApplicationProtocolNegotiationHandler;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import java.io.File;

class Tls extends ApplicationProtocolNegotiationHandler {
    private Tls() {
        super(ApplicationProtocolNames.HTTP_1_1);
    }

    static void add(ChannelPipeline pipeline, SslContext context) {
        pipeline.addLast(context.newHandler(pipeline.channel().alloc()), new Tls());
    }

    @Override
    protected void configurePipeline(ChannelHandlerContext context, String protocol) {
        if (protocol.equals(ApplicationProtocolNames.HTTP_2)) {
            Hello.addHttp2(context.pipeline());
        } else {
            Hello.addHttp1(context.pipeline());
        }
    }

    static SslContext context() throws Exception {
        File certificate = new File(System.getenv("TLS_CERT"));
        File key = new File(System.getenv("TLS_KEY"));
        return SslContextBuilder.forServer(certificate, key)
                .applicationProtocolConfig(new ApplicationProtocolConfig(Protocol.ALPN,
                        SelectorFailureBehavior.NO_ADVERTISE,
                        SelectedListenerFailureBehavior.ACCEPT,
                        ApplicationProtocolNames.HTTP_2, ApplicationProtocolNames.HTTP_1_1))
                .build();
    }
}
