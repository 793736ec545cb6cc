package members

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// tlsConfig returns a configuration that reads its files at every handshake, for a host of this name or address. It returns
// an error if the files cannot be used now.
func tlsConfig(o *Options, host string) (*tls.Config, error) {
	if _, err := authorities(o.CAFile); err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		// VerifyConnection verifies, because the authorities may change.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			roots, err := authorities(o.CAFile)
			if err != nil {
				return err
			}
			options := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: x509.NewCertPool()}
			for _, c := range s.PeerCertificates[1:] {
				options.Intermediates.AddCert(c)
			}
			_, err = s.PeerCertificates[0].Verify(options)
			return err
		},
	}
	if o.CertFile != "" {
		read := func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("client certificate for etcd: %w", err)
			}
			return &c, nil
		}
		if _, err := read(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	}
	return config, nil
}

// authorities reads the authorities in a file; nil stands for those of the system.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("authorities of etcd: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("authorities of etcd: %s has no certificate in PEM", file)
	}
	return pool, nil
}

// login gets tokens of a member for a user. Its methods are safe for concurrent use.
type login struct {
	user, file string

	mu    sync.Mutex
	token string
	known bool // the member has given a token, or said that it needs none
}

// get returns the token, and logs in if there is none.
func (l *login) get(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known {
		return l.token, nil
	}
	password, err := os.ReadFile(l.file)
	if err != nil {
		return "", &loginError{fmt.Errorf("password for etcd: %w", err)}
	}
	ctx = context.WithValue(ctx, sentKey{}, (*atomic.Bool)(nil)) // this is not the request itself
	answer, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx, &etcdserverpb.AuthenticateRequest{
		Name: l.user, Password: strings.TrimRight(string(password), "\r\n"),
	})
	switch text := status.Convert(err).Message(); {
	case err == nil:
		l.token = answer.GetToken()
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled):
		l.token = ""
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthFailed):
		return "", &loginError{fmt.Errorf("etcd does not know the user %q with the password in %s", l.user, l.file)}
	case status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Canceled:
		return "", err
	default:
		return "", &loginError{fmt.Errorf("etcd refuses the user %q: %s", l.user, text)}
	}
	l.known = true
	return l.token, nil
}

// forget makes the next request log in, unless another one has done so since.
func (l *login) forget(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == token {
		l.known = false
	}
}

// expired reports whether a token was refused. Nothing was done then.
func expired(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}

func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}

// unary is an interceptor that sends the token, and gets another one if it is refused.
func (l *login) unary(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	if method == etcdserverpb.Auth_Authenticate_FullMethodName {
		return invoke(ctx, method, in, out, conn, o...)
	}
	for again := false; ; again = true {
		token, err := l.get(ctx, conn)
		if err != nil {
			return err
		}
		err = invoke(withToken(ctx, token), method, in, out, conn, o...)
		if again || !expired(err) {
			return err
		}
		l.forget(token)
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok && sent != nil {
			sent.Store(false)
		}
	}
}

// stream is an interceptor that sends the token. A watch is refused by a message in its stream, after which it is started
// again; by then the status of the member has been asked for with a new token.
func (l *login) stream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := l.get(ctx, conn)
	if err != nil {
		return nil, err
	}
	return open(withToken(ctx, token), d, conn, method, o...)
}
