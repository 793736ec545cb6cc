package host_test

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/host"
)

// BenchmarkAuthorize compares a plain go-plugin client with the host, for questions about different
// objects, by one and by 64 callers. It also measures a cached answer.
func BenchmarkAuthorize(b *testing.B) {
	f := newHost(b)
	uncached := f.bind(f.spec())
	bare := bareClient(b, filepath.Join(f.options.Dir, "plugin"))
	ways := []struct {
		name string
		ask  func(*authorizerpb.AuthorizeRequest) bool
	}{
		{"bare", func(q *authorizerpb.AuthorizeRequest) bool {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			a, err := bare.Authorize(ctx, q)
			return err == nil && a.Decision == allow
		}},
		{"host", func(q *authorizerpb.AuthorizeRequest) bool {
			return uncached.Authorize(context.Background(), "plugin", q).Decision == allow
		}},
	}
	var n atomic.Int64
	another := func() *authorizerpb.AuthorizeRequest {
		q := question("alice", "get")
		q.GetResource().Name = fmt.Sprint("pod-", n.Add(1))
		return q
	}
	for _, way := range ways {
		b.Run("serial/"+way.name, func(b *testing.B) {
			for b.Loop() {
				if !way.ask(another()) {
					b.Fatal("not allowed")
				}
			}
		})
	}
	for _, way := range ways {
		b.Run("64-callers/"+way.name, func(b *testing.B) {
			b.SetParallelism(32) // times two cores
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !way.ask(another()) {
						b.Error("not allowed")
					}
				}
			})
		})
	}
	kept := f.bind(f.spec(func(s *host.Spec) { s.CacheTTL = time.Hour }))
	b.Run("kept", func(b *testing.B) {
		q := question("alice", "get")
		q.User.Groups = []string{"developers", "shop:readers", "system:authenticated"}
		q.User.Extra = map[string]*authorizerpb.Values{"authentication.kubernetes.io/credential-id": {Values: []string{"JTI=9d1a7e0c"}}, "department": {Values: []string{"shop"}}}
		kept.Authorize(context.Background(), "plugin", q)
		b.ReportAllocs()
		for b.Loop() {
			if a := kept.Authorize(context.Background(), "plugin", q); !a.Cached {
				b.Fatal(a)
			}
		}
	})
}

// bareClient returns a client as in go-plugin's documentation, with the same security.
func bareClient(b *testing.B, program string) authorizerpb.AuthorizerClient {
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  authorizerpb.Handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{authorizerpb.ProtocolVersion: {authorizerpb.PluginName: served{}}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Cmd:              exec.Command(program),
		AutoMTLS:         true,
		Logger:           hclog.New(&hclog.LoggerOptions{Output: io.Discard}),
	})
	b.Cleanup(client.Kill)
	protocol, err := client.Client()
	must(b, err)
	raw, err := protocol.Dispense(authorizerpb.PluginName)
	must(b, err)
	return raw.(authorizerpb.AuthorizerClient)
}
