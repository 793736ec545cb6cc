package main

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"stele.dev/stele/cmd/stele/internal/apiserver"
)

// kubeadmFlags are the flags of a static pod of kubeadm 1.37, beside those that name files.
const kubeadmFlags = `--advertise-address=127.0.0.1 --allow-privileged=true --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --enable-bootstrap-token-auth=true
 --etcd-servers=https://127.0.0.1:2379 --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname --proxy-client-cert-file=x --proxy-client-key-file=x --kubelet-client-certificate=x --kubelet-client-key=x
 --requestheader-allowed-names=front-proxy-client --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User
 --secure-port=6443 --service-account-issuer=https://kubernetes.default.svc.cluster.local --service-cluster-ip-range=10.96.0.0/12,fd00:10:96::/112 --runtime-config= --v=2`

// parseKubeAPIServer parses flags of kube-apiserver, and sets those of serve.
func parseKubeAPIServer(t *testing.T, text string) error {
	t.Helper()
	o := &serveOptions{builtIn: apiserver.Policy}
	serve := o.command()
	var own apiserver.Flags
	f, without := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	own.AddFlags(f, without)
	f.AddFlagSet(without)
	serve.Flags().VisitAll(func(s *pflag.Flag) {
		if f.Lookup(s.Name) == nil {
			f.AddFlag(s)
		}
	})
	if err := f.Parse(strings.Fields(text)); err != nil {
		return err
	}
	return own.Set(serve.Flags())
}

func TestFlagsOfKubeadmAreAccepted(t *testing.T) {
	if err := parseKubeAPIServer(t, kubeadmFlags); err != nil {
		t.Error(err)
	}
}

func TestWhatKubeAPIServerCannotDoIsRefusedByName(t *testing.T) {
	for flags, want := range map[string]string{
		"--authorization-mode=AlwaysAllow":                                               "--authorization-mode AlwaysAllow: there is no such authorizer",
		"--authorization-mode=RBAC,Webhook":                                              `give --policy with a bundle whose field authorizers has "webhook"`,
		"--authorization-mode=Node":                                                      "RBAC is always on",
		"--authorization-mode=Some":                                                      "want RBAC or Node",
		"--disable-admission-plugins=ResourceQuota":                                      "--disable-admission-plugins ResourceQuota: it is always on",
		"--enable-admission-plugins=EventRateLimit":                                      "--enable-admission-plugins EventRateLimit: stele does not have it",
		"--enable-admission-plugins=Nope":                                                `there is no admission plugin "Nope"`,
		"--enable-admission-plugins=LimitRanger --disable-admission-plugins=LimitRanger": "both",
		"--feature-gates=A=true":                                                         "stele has no feature gates",
		"--runtime-config=apps/v1=false":                                                 "all versions that stele has are always served",
		"--storage-backend=etcd2":                                                        `want "" or etcd3`,
		"--audit-policy-file=x":                                                          "the field audit of a bundle",
		"--request-timeout=5s":                                                           "stele has no such flag",
		"--secure-port=0":                                                                "want a port",
		"--service-cluster-ip-range=10.0.0.0":                                            "invalid CIDR",
		"--allow-privileged=maybe":                                                       "invalid syntax",
		"--max-requests-inflight=0":                                                      "stele always limits requests",
		"--enable-priority-and-fairness=false":                                           "requests are always limited",
	} {
		switch err := parseKubeAPIServer(t, flags); {
		case err == nil:
			t.Errorf("%s: no error", flags)
		case !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v; want %q", flags, err, want)
		case !strings.Contains(err.Error(), strings.SplitN(strings.TrimPrefix(flags, "--"), "=", 2)[0]) && !strings.Contains(err.Error(), "admission plugin"):
			t.Errorf("%s: the error does not name the flag: %v", flags, err)
		}
	}
}

// TestEachFlagOfTheLibrariesOfKubeAPIServerIsKnown: each flag is one that has an effect, one without, or refused with a reason.
func TestEachFlagOfTheLibrariesOfKubeAPIServerIsKnown(t *testing.T) {
	upstream := pflag.NewFlagSet("", pflag.ContinueOnError)
	options.NewSecureServingOptions().WithLoopback().AddFlags(upstream)
	options.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil)).AddFlags(upstream)
	options.NewAuditOptions().AddFlags(upstream)
	options.NewFeatureOptions().AddFlags(upstream)
	options.NewAdmissionOptions().AddFlags(upstream)
	options.NewAPIEnablementOptions().AddFlags(upstream)
	options.NewEgressSelectorOptions().AddFlags(upstream)
	options.NewTracingOptions().AddFlags(upstream)
	run := options.NewServerRunOptions()
	run.AddUniversalFlags(upstream)
	header := options.RequestHeaderAuthenticationOptions{}
	header.AddFlags(upstream)
	command := kubeAPIServerCommand()
	upstream.VisitAll(func(f *pflag.Flag) {
		if command.Flags().Lookup(f.Name) == nil && f.Deprecated == "" {
			t.Errorf("--%s is unknown", f.Name)
		}
	})
}

// TestEnvtestStartsStele starts the program as kube-apiserver by controller-runtime's envtest, with an etcd of envtest's. envtest brings a definition
// by the API.
func TestEnvtestStartsStele(t *testing.T) {
	t.Parallel()
	var environment *envtest.Environment
	var config *rest.Config
	for attempt := 1; config == nil; attempt++ {
		environment = &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{ships()}}
		environment.ControlPlane.Etcd = &envtest.Etcd{Path: pathOf(t, envtestEtcd)}
		environment.ControlPlane.GetAPIServer().Path = pathOf(t, apiserver.Name)
		started, err := environment.Start()
		switch {
		case err == nil:
			config = started
		case attempt == 3 || !strings.Contains(err.Error(), "default namespace didn't register"): // envtest waits five seconds, which a busy machine may exceed
			t.Fatal(err)
		default:
			if err := environment.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	}()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}}
	if err := c.Create(context.Background(), settings); err != nil {
		t.Fatal(err)
	}
	ship := &unstructured.Unstructured{}
	ship.SetAPIVersion("example.org/v1")
	ship.SetKind("Ship")
	ship.SetNamespace("default")
	ship.SetName("argo")
	if err := c.Create(context.Background(), ship); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedInt64(ship.Object, "spec", "crew"); got != 50 {
		t.Errorf("the default of the definition is not set: %v", ship.Object)
	}
	user, err := environment.AddUser(envtest.User{Name: "nobody-in-particular"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := kubernetes.NewForConfig(user.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.CoreV1().ConfigMaps("default").List(context.Background(), metav1.ListOptions{}); err == nil {
		t.Error("a user without a role reads ConfigMaps")
	}
	if _, err := other.Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
}

// envtestEtcd is the program etcd for envtest.
const envtestEtcd = "etcd-of-envtest"

// pathOf returns the path of a program of the tests.
func pathOf(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ships returns a definition with a default.
func ships() *apiextensionsv1.CustomResourceDefinition {
	crew := apiextensionsv1.JSONSchemaProps{Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("50")}}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Default: &apiextensionsv1.JSON{Raw: []byte("{}")}, Properties: map[string]apiextensionsv1.JSONSchemaProps{"crew": crew}}
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ships.example.org"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.org", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "ships", Kind: "Ship"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}},
		},
	}
}

func TestUnderscoresOfKubeAPIServerAreDashes(t *testing.T) {
	f := kubeAPIServerCommand().Flags()
	if err := f.Parse([]string{"--secure_port=7443"}); err != nil {
		t.Fatal(err)
	}
	if got := f.Lookup("secure-port").Value.String(); got != "7443" {
		t.Errorf("--secure-port is %s", got)
	}
}
