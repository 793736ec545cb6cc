package controllers_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/run/controllers/clients"
)

const filler = "serviceaccount-token-controller"

// issuer makes tokens of which one sees what they are of.
var issuer = &clients.Issuer{
	Token: func(namespace, account, uid, secret string) (string, error) {
		return fmt.Sprintf("%s/%s for %s: %s", namespace, account, secret, uid), nil
	},
	RootCA: []byte("root"),
}

// forAccount makes a Secret one that asks for a token of the account.
func forAccount(name string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"kubernetes.io/service-account.name": name})
		o.Object["type"] = "kubernetes.io/service-account-token"
	}
}

// held is an entry of a Secret's data.
func held(o *unstructured.Unstructured, key string) string {
	text, _, _ := unstructured.NestedString(o.Object, "data", key)
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err.Error()
	}
	return string(decoded)
}

// awaitToken waits until a Secret holds the token of the account.
func (p *testPlane) awaitToken(t testing.TB, secret string, account *unstructured.Unstructured) {
	t.Helper()
	want, _ := issuer.Token("default", account.GetName(), string(account.GetUID()), secret)
	p.await(t, secrets, "default", secret, "filled", func(o *unstructured.Unstructured) bool { return o != nil && held(o, "token") == want })
}

func TestASecretIsFilledWithATokenOfItsAccount(t *testing.T) {
	p := newPlane(t)
	robot := p.create(t, accounts, "default", "robot")
	p.create(t, secrets, "default", "before", forAccount("robot"))
	p.run(t, filler)
	p.awaitToken(t, "before", robot)
	p.create(t, secrets, "default", "after", forAccount("robot"))
	p.awaitToken(t, "after", robot)
	o, err := p.in(secrets, "default").Get(t.Context(), "after", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if data, _, _ := unstructured.NestedMap(o.Object, "data"); len(data) != 3 || held(o, "namespace") != "default" || held(o, "ca.crt") != "root" ||
		o.GetAnnotations()["kubernetes.io/service-account.uid"] != string(robot.GetUID()) || o.GetAnnotations()["kubernetes.io/service-account.name"] != "robot" {
		t.Errorf("%v", o)
	}
}

func TestWhatASecretLacksIsFilledInAgain(t *testing.T) {
	p := newPlane(t)
	robot := p.create(t, accounts, "default", "robot")
	p.create(t, secrets, "default", "a", forAccount("robot"), func(o *unstructured.Unstructured) {
		o.Object["stringData"] = map[string]any{"token": "its own", "namespace": "elsewhere", "ca.crt": "former", "more": "stays"}
	})
	p.run(t, filler)
	p.await(t, secrets, "default", "a", "with the authorities of now alone", func(o *unstructured.Unstructured) bool {
		return held(o, "ca.crt") == "root" && held(o, "token") == "its own" && held(o, "namespace") == "elsewhere" && held(o, "more") == "stays"
	})
	p.patch(t, secrets, "default", "a", `{"data":{"token":null}}`)
	p.awaitToken(t, "a", robot)
	p.patch(t, secrets, "default", "a", `{"data":null}`)
	p.awaitToken(t, "a", robot)
}

// What is of another type, or does not change any more, is left alone.
func TestSecretsThatAreNotFilled(t *testing.T) {
	p := newPlane(t)
	robot := p.create(t, accounts, "default", "robot")
	p.run(t, filler)
	left := []*unstructured.Unstructured{
		p.create(t, secrets, "default", "opaque", forAccount("robot"), func(o *unstructured.Unstructured) { delete(o.Object, "type") }),
		p.create(t, secrets, "default", "orphan", forAccount("nobody"), func(o *unstructured.Unstructured) { o.Object["type"] = "Opaque" }),
		p.create(t, secrets, "default", "immutable", forAccount("robot"), func(o *unstructured.Unstructured) { o.Object["immutable"] = true }),
	}
	p.create(t, secrets, "default", "last", forAccount("robot"))
	p.awaitToken(t, "last", robot)
	for _, o := range left {
		if is, err := p.in(secrets, "default").Get(t.Context(), o.GetName(), metav1.GetOptions{}); err != nil || is.GetResourceVersion() != o.GetResourceVersion() {
			t.Errorf("%s: %v, %v", o.GetName(), is, err)
		}
	}
}

func TestASecretWhoseAccountIsNotThereIsDeleted(t *testing.T) {
	p := newPlane(t)
	robot := p.create(t, accounts, "default", "robot")
	other := p.create(t, accounts, "default", "other")
	p.run(t, filler)
	p.create(t, secrets, "default", "of-nobody", forAccount("nobody"))
	p.awaitGone(t, secrets, "default", "of-nobody")
	p.create(t, secrets, "default", "of-no-name", forAccount("../robot"))
	p.awaitGone(t, secrets, "default", "of-no-name")
	p.create(t, secrets, "default", "of-a-former", forAccount("robot"), func(o *unstructured.Unstructured) {
		o.SetAnnotations(map[string]string{"kubernetes.io/service-account.name": "robot", "kubernetes.io/service-account.uid": string(other.GetUID())})
	})
	p.awaitGone(t, secrets, "default", "of-a-former")

	p.create(t, secrets, "default", "robots", forAccount("robot"))
	p.create(t, secrets, "default", "others", forAccount("other"))
	p.awaitToken(t, "robots", robot)
	p.awaitToken(t, "others", other)
	p.delete(t, accounts, "default", "robot")
	p.awaitGone(t, secrets, "default", "robots")
	p.awaitThere(t, secrets, "default", "others")
}

// Whose it says that it is decides, and to say so does not make a token of one account another's.
func TestASecretThatComesToNameAnotherAccount(t *testing.T) {
	p := newPlane(t)
	robot, other := p.create(t, accounts, "default", "robot"), p.create(t, accounts, "default", "other")
	p.run(t, filler)
	for _, name := range []string{"kept", "cleared", "moved", "renewed"} {
		p.create(t, secrets, "default", name, forAccount("robot"))
		p.awaitToken(t, name, robot)
	}
	const named, unknown = `"kubernetes.io/service-account.name":"other"`, `"kubernetes.io/service-account.uid":null`
	// With the uid of the one before it is nobody's.
	p.patch(t, secrets, "default", "moved", `{"metadata":{"annotations":{`+named+`}}}`)
	p.awaitGone(t, secrets, "default", "moved")
	// The token that is there is still that of the one before, and dies with it.
	p.patch(t, secrets, "default", "kept", `{"metadata":{"annotations":{`+named+`,`+unknown+`}}}`)
	p.patch(t, secrets, "default", "renewed", `{"metadata":{"annotations":{`+named+`,`+unknown+`}},"data":{"token":null}}`)
	p.awaitToken(t, "renewed", other)
	p.delete(t, accounts, "default", "robot")
	p.awaitGone(t, secrets, "default", "cleared")
	p.awaitToken(t, "kept", robot)
	p.delete(t, accounts, "default", "other")
	p.awaitGone(t, secrets, "default", "kept")
	p.awaitGone(t, secrets, "default", "renewed")
}

// Nobody tells the controller afterwards of what has gone before it runs.
func TestASecretWhoseAccountWentMeanwhileIsDeleted(t *testing.T) {
	p := newPlane(t)
	robot := p.create(t, accounts, "default", "robot")
	p.create(t, secrets, "default", "robots", forAccount("robot"))
	stop := p.run(t, filler)
	p.awaitToken(t, "robots", robot)
	stop()
	p.delete(t, accounts, "default", "robot")
	p.create(t, accounts, "default", "robot") // another one
	p.run(t, filler)
	p.awaitGone(t, secrets, "default", "robots")
}

// Not to be served, or not to be shown, is not to be absent.
func TestNoSecretIsDeletedForWrongAnswers(t *testing.T) {
	p := newPlane(t)
	robot := p.create(t, accounts, "default", "robot")
	p.create(t, secrets, "default", "robots", forAccount("robot"))
	selected, err := controllers.Select([]string{filler})
	if err != nil {
		t.Fatal(err)
	}
	for what, answer := range map[string]http.HandlerFunc{
		"not served": func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = strings.Replace(r.URL.Path, "/serviceaccounts/", "/gizmos/", 1)
			p.ServeHTTP(w, r)
		},
		"denied": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
	} {
		heard := make(chan struct{})
		var asked atomic.Int32
		wrong := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/serviceaccounts/robot") {
				p.ServeHTTP(w, r)
				return
			}
			if asked.Add(1) == 2 { // by the one that works
				close(heard)
			}
			answer(w, r)
		})
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { controllers.Run(ctx, selected, wrong, issuer, nil, slog.New(slog.DiscardHandler)) })
		<-heard
		cancel()
		running.Wait()
		if !p.there(t, secrets, "default", "robots") {
			t.Fatalf("%s: it is deleted, while nobody knew of its account", what)
		}
	}
	p.run(t, filler)
	p.awaitToken(t, "robots", robot)
}
