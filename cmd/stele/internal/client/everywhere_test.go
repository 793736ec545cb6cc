package client_test

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/resources/replicas"
)

// Credentials go to the address of another replica only if the server there has the key that the replica says, certified by the
// authority of the log, whatever else the kubeconfig trusts: anybody who can write the object that says the address could read them
// there, and anybody who has the key of one replica could stand for another.
func TestCredentialsGoToReplicasOfTheLogOnly(t *testing.T) {
	authorityOf := func(dir string) *pki.Authority {
		a, err := pki.LoadAuthority(dir)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ours, world := authorityOf(t.TempDir()), authorityOf(t.TempDir())
	keyOf := func(s *httptest.Server) replicas.KeysStatus {
		return replicas.KeysStatus{Server: pki.Fingerprint(s.TLS.Certificates[0].Leaf)}
	}
	serve := func(by *pki.Authority, handler http.HandlerFunc) *httptest.Server {
		pair, err := by.Server(t.TempDir(), []string{"127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(handler)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server
	}
	decision := func(id string) any {
		return map[string]any{"kind": "DecisionList", "apiVersion": "log.stele.dev/v1", "metadata": map[string]any{"resourceVersion": "7"},
			"items": []any{map[string]any{"metadata": map[string]any{"name": id}, "time": "2026-01-02T03:04:05Z"}}}
	}
	answer := func(w http.ResponseWriter, object any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}
	var stolen atomic.Int64
	foreign := serve(world, func(w http.ResponseWriter, _ *http.Request) { stolen.Add(1); answer(w, decision("forged")) })
	impostor := serve(ours, func(w http.ResponseWriter, _ *http.Request) { stolen.Add(1); answer(w, decision("forged")) })
	former := serve(ours, func(w http.ResponseWriter, _ *http.Request) { stolen.Add(1); answer(w, decision("former")) })
	other := serve(ours, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("the other replica is asked with the credentials %q", got)
		}
		answer(w, decision("other"))
	})
	for _, tc := range []struct {
		name     string
		caBundle []byte
		want     []string
	}{
		{"the server says its authority", ours.PEM, []string{"first", "other"}},
		{"the server does not say it", nil, []string{"first"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first := serve(world, func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/replicas") {
					answer(w, decision("first"))
					return
				}
				var list struct {
					Items []replicas.ReplicaObject `json:"items"`
				}
				for name, status := range map[string]replicas.Status{
					"first":    {Self: true, Live: true, CABundle: tc.caBundle},
					"other":    {Live: true, Address: other.Listener.Addr().String(), CABundle: world.PEM, Keys: keyOf(other)},
					"foreign":  {Live: true, Address: foreign.Listener.Addr().String(), CABundle: world.PEM, Keys: keyOf(foreign)},
					"impostor": {Live: true, Address: impostor.Listener.Addr().String(), CABundle: world.PEM, Keys: keyOf(other)},
					"former":   {Live: true, Address: former.Listener.Addr().String(), CABundle: world.PEM},
				} {
					x := replicas.ReplicaObject{Status: status}
					x.Name = name
					list.Items = append(list.Items, x)
				}
				answer(w, list)
			})
			for _, trusted := range []rest.TLSClientConfig{{CAData: slices.Concat(ours.PEM, world.PEM)}, {Insecure: true}} {
				var missing []string
				api, err := client.NewDecisionsEverywhere(t.Context(), &rest.Config{Host: first.URL, BearerToken: "secret", TLSClientConfig: trusted},
					func(text string) { missing = append(missing, text) })
				if err != nil {
					t.Fatal(err)
				}
				var found []string
				if _, err := api.List(t.Context(), client.DecisionsQuery{}, func(page []*client.Decision) error {
					for _, d := range page {
						found = append(found, d.Name)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				slices.Sort(found)
				if !slices.Equal(found, tc.want) || stolen.Load() > 0 {
					t.Errorf("found %q, want %q; the foreign address got %d requests", found, tc.want, stolen.Load())
				}
				if len(missing) != 5-len(tc.want) {
					t.Errorf("said to be missing: %q", missing)
				}
				for _, name := range []string{"foreign", "impostor", "former"} {
					if !strings.Contains(strings.Join(missing, "\n"), "replica "+name) {
						t.Errorf("%s is not said to be missing: %q", name, missing)
					}
				}
			}
		})
	}
}
