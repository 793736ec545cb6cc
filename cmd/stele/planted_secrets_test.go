package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/keep/encryption"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/filelog"
	"stele.dev/stele/policy/bundles"
)

// planted begins each secret value that this test writes. Each has its own end, which says where it was planted.
const planted = "plantedSecretValue"

// recipient is the public key for which the backup of this test is encrypted.
const recipient = "age10tmr7slv3lxlwxm57mwstrhaqk7dcnylv904cpcl8gr8kqzfa3psw0a472"

// plantedBundle records bodies and answers of all requests, and has a kind with a secret field.
const plantedBundle = `package p

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "planted"
	audit: rules: all: {order: 1, level: "RequestResponse"}
	history: windows: {"secrets": "1h", "vaults.example.com": "1h"}
	teams: t: {
		contact: "#t", groups: ["example.com"], namespaces: ["*"]
		kinds: "vaults.example.com": {
			names: {kind: "Vault", plural: "vaults"}
			storageVersion: "v1"
			versions: v1: #schema: spec: {size!: int & <100, password?: string @stele(sensitive)}
		}
		rbac: bindings: "eve": {clusterRole: "view", subjects: [{user: "eve"}], namespaces: ["default"]}
	}
}
`

// planting sends requests with secret values.
type planting struct {
	*testing.T
	config  *rest.Config
	http    *http.Client
	needles [][]byte // what must be in no file
	asked   map[string]bool
}

// way is a request. Its body has the secret value %[1]s, and the same in Base64 as %[2]s.
type way struct {
	name, method, path, kind, body string
	code                           int
	header                         []string
	unhashed                       bool // nothing of it is recorded as a hash
}

// send sends a request with a value of its own, and returns the answer.
func (p *planting) send(w way) []byte {
	p.Helper()
	value := planted + "-" + w.name
	fill := func(text string) string {
		return strings.NewReplacer("%[1]s", value, "%[2]s", base64.StdEncoding.EncodeToString([]byte(value))).Replace(text)
	}
	q, err := http.NewRequestWithContext(p.Context(), w.method, p.config.Host+fill(w.path), strings.NewReader(fill(w.body)))
	if err != nil {
		p.Fatal(err)
	}
	q.Header.Set("Audit-ID", w.name)
	if w.body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	if w.kind != "" {
		q.Header.Set("Content-Type", w.kind)
	}
	for i := 0; i < len(w.header); i += 2 {
		q.Header.Set(w.header[i], fill(w.header[i+1]))
	}
	answer, err := p.http.Do(q)
	if err != nil {
		p.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != w.code {
		p.Fatalf("%s: %s %v, want %d:\n%s", w.name, answer.Status, err, w.code, text)
	}
	p.asked[w.name] = !w.unhashed
	return text
}

const (
	secretsPath = "/api/v1/namespaces/default/secrets"
	vaultsPath  = "/apis/example.com/v1/namespaces/default/vaults"
	anySecret   = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"NAME"},"stringData":{"password":"%[1]s"}}`
	anyVault    = `{"apiVersion":"example.com/v1","kind":"Vault","metadata":{"name":"NAME"},"spec":{"size":1,"password":"%[1]s"}}`
)

func named(body, name string) string { return strings.Replace(body, "NAME", name, 1) }

// ways are requests of all sorts.
func ways() []way {
	eve := []string{"Impersonate-User", "eve"}
	return []way{
		{name: "create", method: "POST", path: secretsPath, body: named(anySecret, "a"), code: 201},
		{name: "data", method: "POST", path: secretsPath, body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"},"data":{"password":"%[2]s"}}`, code: 201},
		{name: "yaml", method: "POST", path: secretsPath, kind: "application/yaml", body: "apiVersion: v1\nkind: Secret\nmetadata: {name: c}\nstringData: {password: '%[1]s'}\n", code: 201},
		{name: "annotated", method: "POST", path: secretsPath, body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"d","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"stringData\":{\"password\":\"%[1]s\"}}"}},"stringData":{"password":"%[1]s"}}`, code: 201},
		{name: "update", method: "PUT", path: secretsPath + "/a", body: named(anySecret, "a"), code: 200},
		{name: "merge-patch", method: "PATCH", path: secretsPath + "/a", kind: "application/merge-patch+json", body: `{"stringData":{"merged":"%[1]s"}}`, code: 200},
		{name: "json-patch", method: "PATCH", path: secretsPath + "/a", kind: "application/json-patch+json", body: `[{"op":"add","path":"/data/patched","value":"%[2]s"}]`, code: 200},
		{name: "json-patch-test", method: "PATCH", path: secretsPath + "/a", kind: "application/json-patch+json", body: `[{"op":"test","path":"/data/patched","value":"%[2]s"}]`, code: 422},
		{name: "strategic-patch", method: "PATCH", path: secretsPath + "/a", kind: "application/strategic-merge-patch+json", body: `{"data":{"strategic":"%[2]s"}}`, code: 200},
		{name: "apply", method: "PATCH", path: secretsPath + "/e?fieldManager=test", kind: "application/apply-patch+yaml", body: named(anySecret, "e"), code: 201},
		{name: "apply-conflict", method: "PATCH", path: secretsPath + "/e?fieldManager=other", kind: "application/apply-patch+yaml", body: named(anySecret, "e"), code: 409},
		{name: "dry-run", method: "POST", path: secretsPath + "?dryRun=All", body: named(anySecret, "f"), code: 201},
		{name: "conflict", method: "POST", path: secretsPath, body: named(anySecret, "a"), code: 409},
		{name: "forbidden", method: "POST", path: secretsPath, body: named(anySecret, "g"), code: 403, header: eve},
		{name: "invalid", method: "POST", path: secretsPath, body: named(anySecret, "Not_A_Name"), code: 422},
		{name: "unknown-field", method: "POST", path: secretsPath + "?fieldValidation=Strict", body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"h"},"stringDat":1,"stringData":{"password":"%[1]s"}}`, code: 400},
		{name: "no-base64", method: "POST", path: secretsPath, body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"i"},"data":{"password":"%[1]s!"}}`, code: 400},
		{name: "garbled", method: "POST", path: secretsPath, body: `{"stringData":{"password":"%[1]s"`, code: 400},
		{name: "of-no-kind", method: "POST", path: secretsPath, kind: "text/plain", body: named(anySecret, "j"), code: 415},
		{name: "get", method: "GET", path: secretsPath + "/a", code: 200},
		{name: "list", method: "GET", path: secretsPath, code: 200},
		{name: "watch", method: "GET", path: secretsPath + "?watch=true&timeoutSeconds=1", code: 200, unhashed: true},
		{name: "protobuf-list", method: "GET", path: secretsPath, code: 200, header: []string{"Accept", "application/vnd.kubernetes.protobuf"}},
		{name: "changes", method: "GET", path: "/apis/log.stele.dev/v1/namespaces/default/changes", code: 200},
		{name: "decisions", method: "GET", path: "/apis/log.stele.dev/v1/namespaces/default/decisions?bodies=true&fieldSelector=since%3D1", code: 200},
		{name: "explanation", method: "POST", path: "/apis/policy.stele.dev/v1/explanations", body: `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"create","version":"v1","resource":"secrets","namespace":"default","object":` + named(anySecret, "k") + `}}`, code: 201},
		{name: "explained", method: "GET", path: "/apis/policy.stele.dev/v1/explanations/invalid", code: 200, unhashed: true},
		{name: "token-review", method: "POST", path: "/apis/authentication.k8s.io/v1/tokenreviews", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"%[1]s"}}`, code: 201},
		{name: "wrong-token", method: "GET", path: secretsPath, code: 401, header: []string{"Authorization", "Bearer %[1]s"}, unhashed: true},
		{name: "query", method: "GET", path: "/api/v1/namespaces?token=%[1]s&password=%[1]s", code: 200, header: []string{"Cookie", "session=%[1]s"}, unhashed: true},
		{name: "vault", method: "POST", path: vaultsPath, body: named(anyVault, "a"), code: 201},
		{name: "vault-too-large", method: "POST", path: vaultsPath, body: `{"apiVersion":"example.com/v1","kind":"Vault","metadata":{"name":"b"},"spec":{"size":100,"password":"%[1]s"}}`, code: 422},
		{name: "vault-patch", method: "PATCH", path: vaultsPath + "/a", kind: "application/merge-patch+json", body: `{"spec":{"password":"%[1]s"}}`, code: 200},
		{name: "vault-forbidden", method: "PATCH", path: vaultsPath + "/a", kind: "application/json-patch+json", body: `[{"op":"replace","path":"/spec/password","value":"%[1]s"}]`, code: 403, header: eve},
		{name: "delete", method: "DELETE", path: secretsPath + "/b", code: 200, unhashed: true},
		{name: "delete-vault", method: "DELETE", path: vaultsPath + "/a", code: 200, unhashed: true},
	}
}

// plantTokens asks for tokens of a service account: by a request, and in a Secret.
func (p *planting) plantTokens(client kubernetes.Interface) {
	p.Helper()
	made, err := client.CoreV1().ServiceAccounts("default").Create(p.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	var requested struct{ Status struct{ Token string } }
	text := p.send(way{name: "token-request", method: "POST", path: "/api/v1/namespaces/default/serviceaccounts/" + made.Name + "/token", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`, code: 201})
	if err := json.Unmarshal(text, &requested); err != nil {
		p.Fatal(err)
	}
	asRobot := []string{"Authorization", "Bearer " + requested.Status.Token}
	p.needles = append(p.needles, []byte(requested.Status.Token[strings.LastIndexByte(requested.Status.Token, '.'):]))
	without := *p // the certificate of the administrator comes before tokens
	without.http = p.anonymous()
	without.send(way{name: "token-used", method: "GET", path: secretsPath, code: 403, header: asRobot, unhashed: true})

	secrets := client.CoreV1().Secrets("default")
	if _, err = secrets.Create(p.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}, Type: corev1.SecretTypeServiceAccountToken}, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		s, err := secrets.Get(p.Context(), "robot", metav1.GetOptions{})
		if err == nil && len(s.Data["token"]) > 0 {
			p.needles = append(p.needles, s.Data["token"][bytes.LastIndexByte(s.Data["token"], '.'):])
			return
		}
		if time.Now().After(deadline) {
			p.Fatalf("the Secret has no token after a minute: %v", err)
		}
	}
}

// anonymous returns a client without a certificate.
func (p *planting) anonymous() *http.Client {
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(p.config))
	if err != nil {
		p.Fatal(err)
	}
	return client
}

// proposed is the body of an object with a policy that refuses what is stored.
func proposed(t *testing.T, kind, more string) string {
	t.Helper()
	source, err := bundles.ReadDir("planted-policy")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range source.Files {
		source.Files[i].Data = bytes.Replace(f.Data, []byte("<100"), []byte("<1"), 1)
	}
	files, err := json.Marshal(activation.SpecOf(source).Files)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"apiVersion":"policy.stele.dev/v1","kind":%q,"metadata":{"name":"proposed"},"spec":{"package":".","files":%s%s}}`, kind, files, more)
}

// protobuf is a Secret in protobuf.
func protobuf(t *testing.T, name, value string) string {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	text, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": value}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// find returns the secret values in a text, also if they are in Base64, or in Base64 within it.
func (p *planting) find(text []byte) (found []string) {
	for _, needle := range p.needles {
		forms := [][]byte{needle}
		for before := range 3 { // how the bytes before it shift it
			encoded := base64.StdEncoding.EncodeToString(append(make([]byte, before), needle...))
			whole := encoded[(before*8+5)/6 : (before+len(needle))*8/6]
			forms = append(forms, []byte(whole))
		}
		for _, form := range forms {
			if i := bytes.Index(text, form); i >= 0 {
				found = append(found, fmt.Sprintf("%q", text[max(0, i-120):min(len(text), i+80)]))
			}
		}
	}
	return found
}

// readDecisions returns all that the log of decisions has, decrypted: it has hashes in place of secrets.
func readDecisions(t *testing.T, data string) []byte {
	t.Helper()
	log, err := filelog.OpenLog(t.Context(), filepath.Join(data, "decisions"), filelog.Options{ReadOnly: true}, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	keys, err := encryption.OpenIn(filepath.Join(data, "pki"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	log.SetKeys(keys.OfLog())
	return readAll(t, log.Log)
}

// readStored returns all that the log of record has, as it is stored: secrets are encrypted.
func readStored(t *testing.T, data string) []byte {
	t.Helper()
	dir, err := datadir.Open(data, datadir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	log, err := dir.OpenLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log.SetKeys(eventlog.LeaveSealed)
	return readAll(t, log)
}

func readAll(t *testing.T, log *eventlog.Log) []byte {
	t.Helper()
	var text bytes.Buffer
	for at := log.Start(); ; {
		batches, err := log.CatchUp(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if len(batches) == 0 {
			return text.Bytes()
		}
		for _, b := range batches {
			for _, e := range b.Events {
				fmt.Fprintln(&text, prototext.Format(e.Meta))
				for _, c := range e.Contents {
					text.Write(append(c, '\n'))
				}
			}
			at = b.Head()
		}
	}
}

// Secrets are encrypted in the log, and are in no other file of the server, whichever way they came: not in
// the audit log, the log of decisions, the index of the past, what the server says and measures, and an encrypted backup.
func TestPlantedSecretsAreEncryptedOrHashed(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"planted-policy/cue.mod/module.cue": "module: \"planted.example\"\nlanguage: version: \"v0.17.0\"\n", "planted-policy/bundle.cue": plantedBundle, "recipients": recipient + "\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := startServer(t, dir, "--policy", "planted-policy", "--log-level", "debug", "--profiling")
	p := &planting{T: t, config: clientConfig(t, dir), needles: [][]byte{[]byte(planted)}, asked: map[string]bool{}}
	var err error
	if p.http, err = rest.HTTPClientFor(p.config); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(p.config)
	if err != nil {
		t.Fatal(err)
	}
	p.send(way{name: "shadow", method: "POST", path: "/apis/policy.stele.dev/v1/shadows", body: proposed(t, "Shadow", ""), code: 201, unhashed: true})
	p.send(way{name: "protobuf", method: "POST", path: secretsPath, kind: "application/vnd.kubernetes.protobuf", body: protobuf(t, "pb", planted+"-protobuf"), code: 201})
	for _, w := range ways() {
		if w.name == "wrong-token" {
			without := *p
			without.http = p.anonymous()
			without.send(w)
			delete(p.asked, w.name) // failed authentications are counted, without their IDs
			continue
		}
		p.send(w)
	}
	p.plantTokens(client)
	p.send(way{name: "plan", method: "POST", path: "/apis/policy.stele.dev/v1/plans", body: proposed(t, "Plan", `,"replay":"1h"`), code: 201, unhashed: true})
	p.send(way{name: "past", method: "GET", path: "/at/" + time.Now().UTC().Format(time.RFC3339) + secretsPath, code: 200, unhashed: true})
	said := map[string][]byte{}
	for _, path := range []string{"/metrics", "/metrics/slis", "/flagz", "/statusz", "/debug/pprof/goroutine?debug=2", "/apis/policy.stele.dev/v1/shadows"} {
		said[path] = p.send(way{name: "page", method: "GET", path: path, code: 200, unhashed: true})
	}
	if err := server.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("stele", "backup", "create", "backup", "--data-dir", "stele-data", "--recipients-file", "recipients").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said["standard output"], said["standard error"] = []byte(server.stdout.String()), []byte(server.stderr.String())
	said["the log of decisions"] = readDecisions(t, "stele-data")
	said["the log"] = readStored(t, "stele-data")
	p.read(said)

	// What is searched has each request, and hashes in place of values.
	lines, err := os.ReadFile(filepath.Join("stele-data", "audit", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	for name, hashed := range p.asked {
		found, hash := false, false
		for line := range bytes.Lines(lines) {
			if bytes.Contains(line, []byte(`"auditID":"`+name+`"`)) {
				found, hash = true, hash || bytes.Contains(line, []byte("hmac-sha256:")) || bytes.Contains(line, []byte("hidden"))
			}
		}
		if !found || hashed && !hash {
			t.Errorf("%s: the audit log has the request: %v, with a hash: %v", name, found, hash)
		}
	}
	for name, text := range said {
		for _, found := range p.find(text) {
			t.Errorf("%s has a secret: %s", name, found)
		}
	}
	for _, form := range []string{planted, base64.StdEncoding.EncodeToString([]byte("x" + planted)), base64.StdEncoding.EncodeToString([]byte("xx" + planted))} {
		if len(p.find([]byte("..."+form+"..."))) == 0 {
			t.Errorf("%q would not be found", form)
		}
	}
}

// holders are the folders that have the log and what is made of it, compressed: the log is read by readStored.
var holders = []string{"etcd", "segments", "checkpoints"}

// read adds the files of the data directory and of the backup.
func (p *planting) read(into map[string][]byte) {
	p.Helper()
	for _, root := range []string{"stele-data", "backup"} {
		err := fs.WalkDir(os.DirFS("."), root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && root == "stele-data" && slices.Contains(holders, d.Name()) {
				return fs.SkipDir
			}
			if !d.Type().IsRegular() {
				return nil
			}
			text, err := os.ReadFile(path)
			if err == nil && strings.HasSuffix(path, ".gz") {
				var plain io.Reader
				if plain, err = gzip.NewReader(bytes.NewReader(text)); err == nil {
					text, err = io.ReadAll(plain)
				}
			}
			into[path] = text
			return err
		})
		if err != nil {
			p.Fatal(err)
		}
	}
}
