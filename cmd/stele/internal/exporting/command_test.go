package exporting_test

import (
	"bytes"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/exporting"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/policies"
)

// TestMain lets the test binary be the child process that compiles bundles.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "policy" {
		root, policy := &cobra.Command{Use: "stele"}, &cobra.Command{Use: "policy"}
		policy.AddCommand(compiling.Command())
		root.AddCommand(policy)
		if root.Execute() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const bundle = `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: a: {contact: "#a", groups: ["a.example.com"], namespaces: ["*"]}
	teams: a: kinds: "widgets.a.example.com": {
		group: "a.example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1"
		versions: v1: #schema: spec: size!: int
	}
	teams: a: rbac: denies: keep: {subjects: [{group: "x"}], rules: w: {apiGroups: ["a.example.com"], resources: ["widgets"], verbs: ["delete"]}, reason: "they stay"}
}
`

// export runs the command and returns what it printed.
func export(args ...string) (stdout, stderr string, err error) {
	var out, notes bytes.Buffer
	cmd := exporting.Command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.Execute()
	return out.String(), notes.String(), err
}

func TestExportOfAServer(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: bundle})
	p.Activate(t, strings.ReplaceAll(strings.ReplaceAll(bundle, "widgets", "gadgets"), "Widget", "Gadget"))
	server := httptest.NewTLSServer(p)
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := func(token string) string {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		config := clientcmdapi.NewConfig()
		config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: authority}
		config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
		config.CurrentContext = "x"
		if err := clientcmd.WriteToFile(*config, file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	admin := kubeconfig("admin-token")
	before := planetest.Compile(t, bundle)
	for name, tc := range map[string]struct {
		args        []string
		out, stderr string // contained
		err         string
	}{
		"the policy in force":   {[]string{"--kubeconfig", admin}, "name: gadgets.a.example.com", "bundle.cue:12: a/denies/keep is not exported", ""},
		"an earlier one":        {[]string{"--kubeconfig", admin, "--digest", digest(before.Form)[:8], "-o", "json"}, `"name": "widgets.a.example.com"`, "a/denies/keep is not exported", ""},
		"an unknown one":        {[]string{"--kubeconfig", admin, "--digest", "0123"}, "", "", "no policy 0123 was ever in force"},
		"a server and a folder": {[]string{"--kubeconfig", admin, "."}, "", "", "a folder and --kubeconfig cannot be given together"},
		"without the right":     {[]string{"--kubeconfig", kubeconfig("nobody-token")}, "", "", "policies"},
	} {
		t.Run(name, func(t *testing.T) {
			out, stderr, err := export(tc.args...)
			switch {
			case tc.err == "" && err != nil:
				t.Fatal(err, stderr)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || out != ""):
				t.Errorf("the error is %v, want %q; printed was %q", err, tc.err, out)
			case !strings.Contains(out, tc.out), !strings.Contains(stderr, tc.stderr):
				t.Errorf("want %q and %q, got\n%s\n%s", tc.out, tc.stderr, stderr, out)
			case strings.Contains(stderr, "another version"):
				t.Errorf("the same program compiles the same policy: %s", stderr)
			}
		})
	}
}

func digest(f *policy.Form) string {
	encoded, _ := f.Encode()
	return policies.DigestOf(encoded).String()
}
