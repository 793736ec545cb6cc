package aggregation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kube-openapi/pkg/handler3"
	"stele.dev/stele/core/catalog/discovery"
)

const (
	// checkEvery is how often a server that is available is looked at, firstRetry and lastRetry are the shortest and the longest pause
	// after a check that failed.
	checkEvery = 30 * time.Second
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// checkTime bounds one question of a check.
	checkTime = 5 * time.Second
	// maxList and maxOpenAPI bound the documents of a server, maxResources the resources of a version.
	maxList      = 4 << 20
	maxOpenAPI   = 16 << 20
	maxResources = 1000
)

// checker is as whom this server looks at others, as in Kubernetes.
var checker = &user.DefaultInfo{Name: "system:kube-aggregator", Groups: []string{user.SystemPrivilegedGroup}}

// look checks the server again and again, until the context ends.
func (x *server) look(ctx context.Context) {
	pause := firstRetry
	for ctx.Err() == nil {
		ok := true
		for _, v := range x.aggregate.Versions {
			ok = x.checkVersion(ctx, v) && ok
		}
		wait := checkEvery
		if !ok {
			wait, pause = pause, min(2*pause, lastRetry)
		} else {
			pause = firstRetry
		}
		x.next.Store(time.Now().Add(wait).Unix())
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-x.poke:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// checkVersion looks whether a version is available, and takes its documents. What it knows stays if it is not.
func (x *server) checkVersion(ctx context.Context, version string) bool {
	next := &state{Availability: Availability{Since: time.Now().Truncate(time.Second)}}
	if was := x.state(version); was != nil {
		next.documents = was.documents
	}
	path := "/apis/" + x.aggregate.Group + "/" + version
	resources, err := x.resources(ctx, path, version)
	if ctx.Err() != nil {
		return false // the server stops, or is not named any more
	}
	if err != nil {
		next.Reason, next.Message = FailedCheck, fmt.Sprintf("failing or missing response from %s%s: %v", x.aggregate.URL, path, err)
		x.set(version, next)
		return false
	}
	next.Available, next.Reason, next.Message = true, Passed, "all checks passed"
	next.resources, next.known = resources, true
	x.set(version, next) // what follows may take long
	withOpenAPI := *next
	if err := x.fetchOpenAPI(ctx, "apis/"+x.aggregate.Group+"/"+version, &withOpenAPI.documents); err != nil {
		x.of.options.Logger.Debug("the OpenAPI document of an aggregated API server could not be read", "server", x.aggregate.Name(), "version", version, "error", err)
		return true
	}
	if !sameDocuments(&next.documents, &withOpenAPI.documents) && ctx.Err() == nil {
		x.set(version, &withOpenAPI)
	}
	return true
}

// sameDocuments reports whether clients see no difference.
func sameDocuments(a, b *documents) bool {
	return a.known == b.known && bytes.Equal(a.openAPI, b.openAPI) && reflect.DeepEqual(a.resources, b.resources)
}

// resources returns the resources of a version, as the server lists them. It rejects a list of another group or version, and names that
// no resource can have.
func (x *server) resources(ctx context.Context, path, version string) ([]discovery.Resource, error) {
	text, err := x.get(ctx, path, "application/json", maxList)
	if err != nil {
		return nil, err
	}
	list := metav1.APIResourceList{}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the answer is no APIResourceList: %w", err)
	}
	group := x.aggregate.Group
	if list.Kind != "APIResourceList" || list.GroupVersion != group+"/"+version {
		return nil, fmt.Errorf("the server answers as %q of %q, not as the APIResourceList of %q", list.Kind, list.GroupVersion, group+"/"+version)
	}
	if len(list.APIResources) > maxResources {
		return nil, fmt.Errorf("it lists %d resources, and may list %d", len(list.APIResources), maxResources)
	}
	made, at := []discovery.Resource{}, map[string]int{}
	for _, r := range list.APIResources {
		if name, _, isPart := strings.Cut(r.Name, "/"); isPart {
			continue // after the resources
		} else if _, twice := at[name]; twice || len(validation.IsDNS1123Label(name)) > 0 || r.Kind == "" {
			return nil, fmt.Errorf("it lists a resource %q of kind %q, which has a wrong name or is there twice", r.Name, r.Kind)
		}
		at[r.Name] = len(made)
		made = append(made, discovery.Resource{Group: group, Version: version, APIResource: r})
	}
	for _, r := range list.APIResources {
		name, part, isPart := strings.Cut(r.Name, "/")
		if !isPart {
			continue
		}
		i, found := at[name]
		if !found { // a resource that cannot be used itself
			if len(validation.IsDNS1123Label(name)) > 0 {
				return nil, fmt.Errorf("it lists a subresource %q", r.Name)
			}
			i, at[name] = len(made), len(made)
			made = append(made, discovery.Resource{Group: group, Version: version, APIResource: metav1.APIResource{Name: name, Namespaced: r.Namespaced, Kind: r.Kind, Verbs: metav1.Verbs{}}})
		}
		if part == "" || strings.ContainsAny(part, " ?#%") {
			return nil, fmt.Errorf("it lists a subresource %q", r.Name)
		}
		made[i].Subresources = append(made[i].Subresources, r)
	}
	return made, nil
}

// fetchOpenAPI takes the OpenAPI v3 document at a path, if there is one and its hash differs.
func (x *server) fetchOpenAPI(ctx context.Context, path string, into *documents) error {
	text, err := x.get(ctx, "/openapi/v3", "application/json", maxList)
	if err != nil {
		return err
	}
	index := handler3.OpenAPIV3Discovery{}
	if err := json.Unmarshal(text, &index); err != nil {
		return err
	}
	at := index.Paths[path].ServerRelativeURL
	if at == "" || at == into.openAPIAt && strings.Contains(at, "hash=") {
		return nil
	}
	if !strings.HasPrefix(at, "/openapi/v3/") {
		return fmt.Errorf("its index leads to %q", at)
	}
	text, err = x.get(ctx, at, "application/json", maxOpenAPI)
	if err != nil {
		return err
	}
	document := struct {
		OpenAPI string                     `json:"openapi"`
		Paths   map[string]json.RawMessage `json:"paths"`
	}{}
	if err := json.Unmarshal(text, &document); err != nil || document.OpenAPI == "" {
		return errors.Join(errors.New("it is no OpenAPI document"), err)
	}
	into.openAPI, into.openAPIAt = text, at
	return nil
}

// get asks the server for a document of JSON with at most so many bytes, as this server itself.
func (x *server) get(ctx context.Context, path, accept string, most int64) ([]byte, error) {
	if x.unusable != nil {
		return nil, x.unusable
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, x.aggregate.URL+path, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Accept", accept)
	q.Header.Set("User-Agent", "stele-aggregator")
	identity, err := identityOf(checker)
	if err != nil {
		return nil, err
	}
	maps.Copy(q.Header, identity)
	answer, err := x.transports.requests.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, answer.Body, 4<<10) // so that the connection can be used again
		if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
			return nil, fmt.Errorf("bad status %d: it does not trust the client certificate of this server, whose authority is in the ConfigMap extension-apiserver-authentication in kube-system", answer.StatusCode)
		}
		return nil, fmt.Errorf("bad status %d", answer.StatusCode)
	}
	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind != "application/json" {
		return nil, fmt.Errorf("the answer is of type %q, not JSON", kind)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("the answer has more than %d bytes", most)
	}
	return text, err
}
