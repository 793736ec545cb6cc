package authn_test

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"stele.dev/stele/core/auth/authn/authntest"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
)

const everybodyReads = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		rbac: {
			clusterRoles: all: rules: r: {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
			bindings: all: {clusterRole: "all", subjects: [{group: "system:authenticated"}], namespaces: ["*"]}
		}
	}
}
`

// doors is a control plane with every authentication method, behind TLS. Its files are checked all the time.
type doors struct {
	*testing.T
	plane                                  *planetest.Plane
	authority, proxies                     *pki.Authority
	tokens, revoked, proxiesFile, jwtsFile string
	issuer                                 *authntest.Issuer
	admin                                  *http.Client
}

func openDoors(t *testing.T) *doors {
	t.Helper()
	dir := t.TempDir()
	d := &doors{T: t, tokens: file(t, "bobs-token,bob,1\n"), revoked: file(t, "# nobody\n"), issuer: issuer(t), proxies: planetest.Must[*pki.Authority](t)(pki.LoadAuthority(dir))}
	d.proxiesFile, d.jwtsFile = file(t, string(d.proxies.PEM)), file(t, authntest.Configuration(d.issuer))
	c := plane.Config{Listener: planetest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))}
	c.Authentication = plane.Authentication{
		TokenFile: d.tokens, RevokedCertificates: d.revoked, Configuration: d.jwtsFile, BootstrapTokens: true, ReloadEvery: 10 * time.Millisecond,
	}
	c.Authentication.FrontProxy.ClientCAFile, c.Authentication.FrontProxy.UsernameHeaders = d.proxiesFile, []string{"X-Remote-User"}
	d.plane = planetest.Start(t, planetest.Options{Bundle: everybodyReads, Config: c})
	d.authority = planetest.Must[*pki.Authority](t)(pki.LoadAuthority(filepath.Join(d.plane.Dir, "pki")))
	d.admin = d.client(d.certificate(d.authority, "admin", time.Hour))
	return d
}

func (d *doors) certificate(of *pki.Authority, name string, life time.Duration) *tls.Certificate {
	pair := planetest.Must[pki.Pair](d)(of.Issue(name, []string{"devs"}, life))
	c := planetest.Must[tls.Certificate](d)(tls.X509KeyPair(pair.Cert, pair.Key))
	return &c
}

func (d *doors) config(certificate *tls.Certificate) *tls.Config {
	c := &tls.Config{RootCAs: d.authority.Pool()}
	if certificate != nil {
		c.Certificates = []tls.Certificate{*certificate}
	}
	return c
}

func (d *doors) client(certificate *tls.Certificate) *http.Client {
	transport := &http.Transport{TLSClientConfig: d.config(certificate), ForceAttemptHTTP2: true}
	d.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// do sends a request of the administrator, which succeeds, and decodes the answer.
func (d *doors) do(method, path, body string) map[string]any {
	d.Helper()
	q := planetest.Must[*http.Request](d)(http.NewRequest(method, "https://"+d.plane.Address()+path, strings.NewReader(body)))
	q.Header.Set("Content-Type", "application/json")
	resp := planetest.Must[*http.Response](d)(d.admin.Do(q))
	defer resp.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode > 299 {
		d.Fatalf("%s %s: %d %v %v", method, path, resp.StatusCode, answer, err)
	}
	return answer
}

func (d *doors) token(account, spec string) string {
	answer := d.do("POST", planetest.AccountsPath+"/"+account+"/token", `{"spec":{`+spec+`}}`)
	return answer["status"].(map[string]any)["token"].(string)
}

// credential is what a client shows, and how it becomes invalid.
type credential struct {
	certificate *tls.Certificate
	header      http.Header
	end         func()
}

func bearing(token string, end func()) credential {
	return credential{header: http.Header{"Authorization": {"Bearer " + token}}, end: end}
}

func (d *doors) revoke(c *tls.Certificate) func() {
	sum := sha256.Sum256(c.Certificate[0])
	return func() { replace(d, d.revoked, hex.EncodeToString(sum[:])+"\n") }
}

var credentials = map[string]func(*doors) credential{
	"a certificate that is revoked": func(d *doors) credential {
		c := d.certificate(d.authority, "alice", time.Hour)
		return credential{certificate: c, end: d.revoke(c)}
	},
	"a certificate that expires": func(d *doors) credential {
		return credential{certificate: d.certificate(d.authority, "alice", 2*time.Second), end: func() {}}
	},
	"a front proxy whose certificate is revoked": func(d *doors) credential {
		c := d.certificate(d.proxies, "proxy", time.Hour)
		return credential{certificate: c, header: http.Header{"X-Remote-User": {"carol"}}, end: d.revoke(c)}
	},
	"a static token that is removed": func(d *doors) credential {
		return bearing("bobs-token", func() { replace(d, d.tokens, "other-token,bob,1\n") })
	},
	"a static token that gets other groups": func(d *doors) credential {
		return bearing("bobs-token", func() { replace(d, d.tokens, "bobs-token,bob,1,devs\n") })
	},
	"a token of an account that is deleted": func(d *doors) credential {
		d.do("POST", planetest.AccountsPath, `{"metadata":{"name":"robot"}}`)
		return bearing(d.token("robot", ""), func() { d.do("DELETE", planetest.AccountsPath+"/robot", "") })
	},
	"a token bound to a Secret that is deleted": func(d *doors) credential {
		d.do("POST", planetest.AccountsPath, `{"metadata":{"name":"robot"}}`)
		d.do("POST", planetest.SecretsPath, `{"metadata":{"name":"bound"}}`)
		return bearing(d.token("robot", `"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"bound"}`), func() { d.do("DELETE", planetest.SecretsPath+"/bound", "") })
	},
	"a bootstrap token that is deleted": func(d *doors) credential {
		const secrets = "/api/v1/namespaces/kube-system/secrets"
		d.do("POST", secrets, `{"metadata":{"name":"bootstrap-token-abcdef"},"type":"bootstrap.kubernetes.io/token","stringData":{"token-id":"abcdef","token-secret":"0123456789abcdef","usage-bootstrap-authentication":"true"}}`)
		return bearing("abcdef.0123456789abcdef", func() { d.do("DELETE", secrets+"/bootstrap-token-abcdef", "") })
	},
	"a JWT of an issuer that is removed": func(d *doors) credential {
		token := d.issuer.Token("erin", nil)
		eventually(d, "the issuer is known", func() bool { return who(d.plane.Authenticator, bearer(token)) == "erin" })
		other := issuer(d)
		return bearing(token, func() { replace(d, d.jwtsFile, authntest.Configuration(other)) })
	},
}

// openStreams are the requests that go on for long. Each returns the lines of its answer.
var openStreams = map[string]func(*doors, credential) (lines func() (string, error)){
	"a watch of objects": func(d *doors, c credential) func() (string, error) { return d.watch(c, planetest.ConfigMapsPath) },
	"a watch of a rendered kind": func(d *doors, c credential) func() (string, error) {
		return d.watch(c, planetest.RbacPath+"/clusterroles")
	},
	"a watch of changes": func(d *doors, c credential) func() (string, error) {
		return d.watch(c, "/apis/log.stele.dev/v1/changes")
	},
	"a watch of decisions": func(d *doors, c credential) func() (string, error) {
		return d.watch(c, "/apis/log.stele.dev/v1/decisions")
	},
	"a watch through a WebSocket": (*doors).socket,
}

func (d *doors) watch(c credential, path string) func() (string, error) {
	d.Helper()
	q := planetest.Must[*http.Request](d)(http.NewRequest("GET", "https://"+d.plane.Address()+path+"?watch=true", nil))
	if c.header != nil {
		q.Header = c.header.Clone()
	}
	resp := planetest.Must[*http.Response](d)(d.client(c.certificate).Do(q))
	d.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		d.Fatalf("%d %s", resp.StatusCode, text)
	}
	r := bufio.NewReader(resp.Body)
	return func() (string, error) { return r.ReadString('\n') }
}

func (d *doors) socket(c credential) func() (string, error) {
	d.Helper()
	config := planetest.Must[*websocket.Config](d)(websocket.NewConfig("wss://"+d.plane.Address()+planetest.ConfigMapsPath+"?watch=true", "https://"+d.plane.Address()))
	config.TlsConfig = d.config(c.certificate)
	if c.header != nil {
		config.Header = c.header.Clone()
	}
	conn := planetest.Must[*websocket.Conn](d)(websocket.DialConfig(config))
	d.Cleanup(func() { conn.Close() })
	return func() (message string, err error) { return message, websocket.Message.Receive(conn, &message) }
}

// A stream ends soon after its credential has become invalid, with the answer that a new request would get. Other streams
// go on.
func TestStreamsDoNotOutliveTheirCredential(t *testing.T) {
	for name, makeCredential := range credentials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDoors(t)
			shown := makeCredential(d)
			reads := map[string]func() (string, error){}
			for stream, open := range openStreams {
				reads[stream] = open(d, shown)
			}
			others := d.watch(credential{certificate: d.certificate(d.authority, "dora", time.Hour)}, planetest.ConfigMapsPath)
			shown.end()
			for stream, read := range reads {
				last, err := lastLine(read)
				if !strings.Contains(last, `"type":"ERROR"`) || !strings.Contains(last, `"reason":"Unauthorized"`) {
					t.Errorf("%s ended with %q, %v", stream, last, err)
				}
			}
			d.do("POST", planetest.ConfigMapsPath, `{"metadata":{"name":"later"}}`)
			for {
				line, err := others()
				if err != nil || strings.Contains(line, `"ERROR"`) {
					t.Fatalf("a stream of another user ended: %s %v", line, err)
				}
				if strings.Contains(line, `"later"`) {
					break
				}
			}
		})
	}
}

func lastLine(read func() (string, error)) (last string, err error) {
	type result struct {
		last string
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		var r result
		for {
			line, err := read()
			if err != nil {
				r.err = err
				ended <- r
				return
			}
			r.last = line
		}
	}()
	select {
	case r := <-ended:
		return r.last, r.err
	case <-time.After(10 * time.Second):
		return "", fmt.Errorf("it is still open")
	}
}
