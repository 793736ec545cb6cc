package core

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/authn"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/openapi"
	"stele.dev/stele/core/past"
	"stele.dev/stele/policy"
)

// Below /at/<moment> is the API as it was at that moment, read-only. Who asks, and what they may
// read, is decided today, as for the same request without the prefix; what there is at its path is
// looked up in the policy of then. A server whose log ends at that revision would answer the same.

const (
	atPrefix = "/at"
	// revisionHeader names the revision that all below /at is answered from.
	revisionHeader = "Stele-Revision"
)

// cutMoment takes the prefix off the path.
func (p *Pipeline) cutMoment(r *Request) error {
	below, found := strings.CutPrefix(r.http.URL.Path, atPrefix)
	if !found || below != "" && below[0] != '/' {
		return nil
	}
	text, rest, _ := strings.Cut(strings.TrimPrefix(below, "/"), "/")
	h, u := *r.http, *r.http.URL
	u.Path, u.RawPath = "/"+rest, ""
	h.URL = &u
	r.http = &h
	m, err := past.Parse(text)
	if err != nil {
		return p.noMoment(r, err)
	}
	r.moment = &m
	return nil
}

// noMoment is the error of a request below /at/<moment> where there is nothing. Where it asks for
// what is served, and not for a resource, its text is a warning, too: client-go keeps of an error of
// discovery the code alone, and shows warnings.
func (p *Pipeline) noMoment(r *Request, err error) error {
	info, asked := p.requestInfo.NewRequestInfo(r.http)
	if status := apierrors.APIStatus(nil); asked == nil && !info.IsResourceRequest && errors.As(err, &status) {
		r.warn(status.Status().Message)
	}
	return err
}

// enter finds out which revision the moment is, and what there was then. It is the same
// in all rounds.
func (p *Pipeline) enter(ctx context.Context, r *Request) error {
	if r.moment == nil || r.past != nil || r.requester == authn.Anonymous && public(r.http.URL.Path) { // to whom the server's state is all there is
		return nil
	}
	revision, tip, err := p.past.Resolve(ctx, r.tip, *r.moment)
	if err != nil {
		return p.noMoment(r, err)
	}
	if err := r.pin(tip); err != nil {
		return err
	}
	if r.past, err = p.past.Tip(ctx, tip, revision); err != nil {
		return p.noMoment(r, err)
	}
	r.asOf = r.past.Time
	r.w.Header().Set(revisionHeader, strconv.FormatUint(revision, 10))
	return nil
}

// read makes sure that a request below /at is one that the past has an answer to. Questions about
// access are for today.
func (p *Pipeline) read(ctx context.Context, r *Request) error {
	switch {
	case r.moment == nil || r.past == nil:
		return nil
	case r.review != nil || r.explains:
		r.past = nil
		return nil
	case r.write || r.issues || r.ofCollection():
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: fmt.Sprintf("this is the past, as of revision %d, and read-only: %s at the present, without %s/<moment> before the path; stele revert and stele undelete bring back what was", r.past.Revision(), r.info.Verb, atPrefix),
			Details: &metav1.StatusDetails{Group: r.info.APIGroup, Kind: r.info.Resource, Name: r.info.Name},
		}}
	}
	return p.reaches(ctx, r, r.past.Revision())
}

// versionThen is the version of a kind that the path of a request means: of the policy of
// then, or today's if that had the kind but not the version.
func (r *Request) versionThen(gvr schema.GroupVersionResource) *policy.Version {
	r.converted = false
	v := r.world().Policy.Version(gvr)
	if v != nil || r.past == nil {
		return v
	}
	if v = r.tip.Policy.Version(gvr); v == nil || r.past.Policy.Kind(v.Kind.Stored().GroupResource()) == nil {
		return nil
	}
	r.converted = true
	return v
}

// absent says of a resource that is not served below /at what there is in its place.
func (p *Pipeline) absent(ctx context.Context, r *Request, err error) error {
	if r.past == nil || !r.info.IsResourceRequest || !apierrors.IsNotFound(err) {
		return err
	}
	gvr := schema.GroupVersionResource{Group: r.info.APIGroup, Version: r.info.APIVersion, Resource: r.info.Resource}
	if r.versionThen(gvr) != nil || isVirtual(gvr) {
		return err // it is its path that is wrong
	}
	text := fmt.Sprintf("%s of version %s was not served at revision %d", gvr.GroupResource(), gvr.Version, r.past.Revision())
	if k := r.past.Policy.Kind(gvr.GroupResource()); k != nil {
		var versions []string
		for _, v := range k.Versions {
			if v.Served {
				versions = append(versions, v.Name)
			}
		}
		text += ": its versions were " + strings.Join(versions, ", ")
	} else if since, findErr := p.past.Introduced(ctx, r.tip, gvr.GroupResource(), r.past.Revision()); findErr != nil {
		return findErr
	} else if since > 0 {
		text += fmt.Sprintf(": the kind is there since revision %d", since)
	}
	refused := apierrors.NewGenericServerResponse(http.StatusNotFound, r.info.Verb, gvr.GroupResource(), r.info.Name, "", 0, false)
	refused.ErrStatus.Message = text
	return refused
}

// then is the revision of the past that a request is answered from; 0 if it is the present.
func (r *Request) then() uint64 {
	switch {
	case r.exactly > 0 && r.exactly < r.world().Revision():
		return r.exactly
	case r.past != nil:
		return r.past.Revision()
	}
	return 0
}

// warnPast tells what a client below /at would not expect.
func (p *Pipeline) warnPast(ctx context.Context, r *Request) error {
	if r.past == nil {
		return nil
	}
	if r.converted {
		r.warn(fmt.Sprintf("%s was not served at revision %d: converted now", r.kind.GroupVersionKind().GroupVersion(), r.past.Revision()))
	}
	if r.info.Verb == "get" {
		return nil
	}
	return p.warnNamespace(ctx, r)
}

// warnExact is warnPast for a read of one revision without the prefix. It is asked in terms of
// today, its selectors too: what was not served then is converted, what was not there is empty.
func (p *Pipeline) warnExact(ctx context.Context, r *Request) error {
	if r.kind == nil || r.past != nil || r.then() == 0 {
		return nil
	}
	law, err := p.past.Policy(ctx, r.tip, r.exactly)
	if err != nil {
		return err
	}
	gvr := schema.GroupVersionResource{Group: r.info.APIGroup, Version: r.info.APIVersion, Resource: r.info.Resource}
	switch {
	case law == nil || law.Kind(r.kind.Kind.Stored().GroupResource()) == nil:
		r.warn(fmt.Sprintf("%s was not served at revision %d: there was none", gvr.GroupResource(), r.exactly))
	case law.Version(gvr) == nil:
		r.warn(fmt.Sprintf("%s was not served at revision %d: converted now", gvr.GroupVersion(), r.exactly))
	}
	return nil
}

// warnNamespace tells who lists in a namespace that it was not there.
func (p *Pipeline) warnNamespace(ctx context.Context, r *Request) error {
	why, err := p.noNamespace(ctx, r, r.then())
	if why != "" {
		r.warn(why)
	}
	return err
}

// noNamespace says when the namespace of a request came or went, if it was not there at a revision.
func (p *Pipeline) noNamespace(ctx context.Context, r *Request, then uint64) (string, error) {
	if then == 0 || r.key.Namespace == "" {
		return "", nil
	}
	ns, err := p.past.Object(ctx, r.tip, commit.Namespaces, "", r.key.Namespace, then)
	if ns != nil || err != nil {
		return "", err
	}
	went, came, err := p.past.Around(ctx, commit.Namespaces, "", r.key.Namespace, then, r.tip.Revision())
	text := fmt.Sprintf("there was no namespace %q at revision %d", r.key.Namespace, then)
	if went > 0 {
		text += fmt.Sprintf(": it was deleted at revision %d", went)
	}
	if came > 0 {
		text += fmt.Sprintf(": it was created at revision %d", came)
	}
	return text, err
}

// surfacesKept is how many surfaces there are of policies that are not in force any more.
const surfacesKept = 4

// surfaceThen is surfaceOf for a policy that is not in force. surfaceMu is held.
func (p *Pipeline) surfaceThen(of *policy.Policy) *surface {
	i := slices.IndexFunc(p.surfacesThen, func(s *surface) bool { return s.policy == of })
	var s *surface
	if i >= 0 {
		s = p.surfacesThen[i]
		p.surfacesThen = slices.Delete(p.surfacesThen, i, i+1)
	} else {
		var documents *openapi.Service
		if today := p.surface.Load(); today != nil {
			documents = today.openapi // most kinds are as they were
		}
		s = p.newSurface(of, documents)
	}
	p.surfacesThen = slices.Insert(p.surfacesThen, 0, s)
	p.surfacesThen = slices.Clip(p.surfacesThen[:min(len(p.surfacesThen), surfacesKept)])
	return s
}

// below gives a redirection the prefix that was taken off.
type below struct {
	*response
	at string
}

func (w below) WriteHeader(code int) {
	if to, err := url.Parse(w.Header().Get("Location")); err == nil && to.Path != "" {
		to.Path = w.at + to.Path
		w.Header().Set("Location", to.String())
	}
	w.response.WriteHeader(code)
}
