// Netty's HTTP codec with a handler of our own, and one event loop thread for each core.

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.*;
import io.netty.channel.epoll.*;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.*;
import io.netty.handler.codec.http2.*;
import io.netty.handler.ssl.SslContext;
import io.netty.util.Version;
import java.nio.charset.StandardCharsets;

public class Hello extends SimpleChannelInboundHandler<HttpObject> {
    private static final byte[] BODY = "Hello, World!".getBytes(StandardCharsets.US_ASCII);

    @Override
    protected void channelRead0(ChannelHandlerContext context, HttpObject message) {
        // Anything but the head of a request is a part of its body, which is ignored.
        if (!(message instanceof HttpRequest)) return;
        HttpRequest request = (HttpRequest) message;
        if (request.decoderResult().isFailure()) {
            context.writeAndFlush(answer(HttpResponseStatus.BAD_REQUEST, new byte[0]))
                    .addListener(ChannelFutureListener.CLOSE);
        } else if (!new QueryStringDecoder(request.uri()).path().equals("/")) {
            context.write(answer(HttpResponseStatus.NOT_FOUND, new byte[0]));
        } else {
            context.write(answer(HttpResponseStatus.OK, BODY));
        }
    }

    // Responses to pipelined requests are sent together.
    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        context.flush();
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }

    private static FullHttpResponse answer(HttpResponseStatus status, byte[] body) {
        FullHttpResponse response = new DefaultFullHttpResponse(
                HttpVersion.HTTP_1_1, status, Unpooled.wrappedBuffer(body));
        response.headers()
                .set(HttpHeaderNames.CONTENT_TYPE, HttpHeaderValues.TEXT_PLAIN)
                .setInt(HttpHeaderNames.CONTENT_LENGTH, body.length);
        return response;
    }

    static void addHttp1(ChannelPipeline pipeline) {
        pipeline.addLast(new HttpServerCodec(), new HttpServerKeepAliveHandler(),
                new HttpServerExpectContinueHandler(), new Hello());
    }

    // Each stream is a separate channel, with the handler for HTTP/1.1.
    static void addHttp2(ChannelPipeline pipeline) {
        pipeline.addLast(Http2FrameCodecBuilder.forServer().build());
        pipeline.addLast(new Http2MultiplexHandler(new ChannelInitializer<Channel>() {
            @Override
            protected void initChannel(Channel stream) {
                stream.pipeline().addLast(new Http2StreamFrameToHttpObjectCodec(true), new Hello());
            }
        }));
    }

    public static void main(String[] args) throws Exception {
        String mode = args.length > 0 ? args[0] : "nio";
        if (mode.equals("--version")) {
            System.out.println("Netty "
                    + Version.identify().get("netty-codec-http").artifactVersion()
                    + ", " + System.getProperty("java.vm.name") + " " + Runtime.version());
            return;
        }
        boolean epoll = mode.equals("epoll");
        SslContext tls = System.getenv("TLS_CERT") == null ? null : Tls.context();
        int cpus = Integer.parseInt(System.getenv("CPUS"));
        EventLoopGroup boss = epoll ? new EpollEventLoopGroup(1) : new NioEventLoopGroup(1);
        EventLoopGroup loops = epoll ? new EpollEventLoopGroup(cpus) : new NioEventLoopGroup(cpus);
        new ServerBootstrap()
                .group(boss, loops)
                .channel(epoll ? EpollServerSocketChannel.class : NioServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, 1024)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel channel) {
                        ChannelPipeline pipeline = channel.pipeline();
                        if (tls != null) Tls.add(pipeline, tls);
                        else if (mode.equals("http2")) addHttp2(pipeline);
                        else addHttp1(pipeline);
                    }
                })
                .bind(System.getenv("HOST"), Integer.parseInt(System.getenv("PORT")))
                .sync().channel().closeFuture().sync();
    }
}
