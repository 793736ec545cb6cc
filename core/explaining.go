package core

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/changes"
	"stele.dev/stele/core/explain"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
)

// remembered is how many refusals a replica can explain.
const remembered = 1024

// explainer is the client of requests that are explained.
const explainer = "stele-explain"

func isExplanations(r schema.GroupVersionResource) bool {
	return r.Group == explain.Group && r.Version == explain.Version && r.Resource == explain.Plural
}

// allowedExplanations tells whether there is an explanation at the request's path, and
// whether it takes the method. To create one is to read.
func (r *Request) allowedExplanations() error {
	i := r.Info
	r.Key.Group, r.Key.Resource, r.Key.Name = explain.Group, explain.Plural, i.Name
	if i.Subresource != "" || i.Namespace != "" {
		return status.NotServed(i.Verb, r.Resource())
	}
	if i.Verb != "get" && (i.Verb != "create" || i.Name != "") {
		return apierrors.NewMethodNotSupported(r.Resource(), i.Verb)
	}
	r.Write, r.explains = false, true
	return nil
}

// answerExplanation says what would become of a request, or what became of one.
func (p *Pipeline) answerExplanation(ctx context.Context, r *Request) error {
	f, err := negotiate.Untyped(r.HTTP)
	if err != nil {
		return err
	}
	if r.Info.Verb == "get" {
		e, err := p.explained(ctx, r)
		if err != nil {
			return err
		}
		return r.WriteJSON(f, http.StatusOK, e)
	}
	if r.trace != nil {
		return apierrors.NewBadRequest("an explanation of an explanation is not to be had")
	}
	if r.Body == nil {
		mediaType, err := negotiate.Body(r.HTTP, negotiate.JSON)
		if err != nil {
			return err
		}
		r.Body = &call.Body{MediaType: mediaType}
		if r.Body.Raw, err = call.ReadLimited(r.HTTP); err != nil {
			return err
		}
	}
	if err := p.See(ctx, r, ""); err != nil {
		return err
	}
	e := new(explain.Explanation)
	strict, err := kjson.UnmarshalStrict(r.Body.Raw, e)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", explain.Kind, explain.Version, explain.Kind, err))
	}
	if e.Kind != explain.Kind || e.APIVersion != explain.Group+"/"+explain.Version {
		return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): it is %s, %s", explain.Kind, e.APIVersion, e.Kind))
	}
	if err := p.explain(ctx, r, e); err != nil {
		return err
	}
	return r.WriteJSON(f, http.StatusCreated, e)
}

// trace is what the stages of an explained request said.
type trace struct {
	stages     []explain.Stage
	considered []policy.Considered // by the stage that is running
	until      string              // the last stage that is run; "" for all
	brief      bool                // without what was considered
}

// explain takes the request that is asked about through the pipeline, as a dry run, and
// writes down what each stage says: there is no second set of rules that could differ.
func (p *Pipeline) explain(ctx context.Context, asker *Request, e *explain.Explanation) error {
	t := &trace{}
	ctx = policy.Explain(ctx)
	q, err := p.explainedRequest(ctx, &e.Spec, t)
	if err != nil {
		return err
	}
	w := &call.Discard{header: http.Header{}}
	inner := &Request{HTTP: q, W: &call.Response{ResponseWriter: w}, AuditID: asker.AuditID, Received: asker.Received, Requester: asker.User, Tip: asker.Tip, Confirmed: asker.Confirmed, trace: t}
	if q.URL.Path == "" {
		err = p.onlyAuthorize(ctx, inner, &e.Spec)
	} else {
		err = p.take(inner, "connection")
	}
	if inner.Cancel != nil {
		inner.Cancel()
	}
	e.Status = p.verdict(inner, err)
	if e.Status.Stages = t.stages; err == nil && t.until != "" {
		e.Status.Code = 0
	} else if err == nil {
		e.Status.Code = inner.W.Code
	}
	return nil
}

// explainedRequest is the request that is asked about. One with a verb that is none of
// HTTP's has no path.
func (p *Pipeline) explainedRequest(ctx context.Context, s *explain.Spec, t *trace) (*http.Request, error) {
	var errs field.ErrorList
	at := field.NewPath("spec")
	if s.Verb == "" {
		errs = append(errs, field.Required(at.Child("verb"), ""))
	}
	if (s.Resource == "") == (s.Path == "") {
		errs = append(errs, field.Invalid(at.Child("resource"), s.Resource, "exactly one of resource or path must be specified"))
	}
	if s.Resource != "" && s.Version == "" {
		errs = append(errs, field.Required(at.Child("version"), ""))
	}
	if s.Path != "" && !strings.HasPrefix(s.Path, "/") {
		errs = append(errs, field.Invalid(at.Child("path"), s.Path, "must begin with /"))
	}
	if s.Path != "" && p.ofResource(s.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), s.Path, "is that of a resource: name it as one"))
	}
	if s.Path != "" && !slices.Contains([]string{"get", "head", "post", "put", "patch", "delete"}, s.Verb) {
		errs = append(errs, field.NotSupported(at.Child("verb"), s.Verb, []string{"get", "head", "post", "put", "patch", "delete"}))
	}
	if strings.ToLower(s.Verb) != s.Verb {
		errs = append(errs, field.Invalid(at.Child("verb"), s.Verb, "must be in lower case"))
	}
	switch s.Verb {
	case "get", "update", "patch", "delete":
		if s.Resource != "" && s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
	}
	for name, value := range map[string]string{"fieldSelector": s.FieldSelector, "labelSelector": s.LabelSelector} {
		if value != "" && (s.Resource == "" || !slices.Contains([]string{"list", "watch", "deletecollection"}, s.Verb)) {
			errs = append(errs, field.Invalid(at.Child(name), value, "only list, watch and deletecollection of a resource have selectors"))
		}
	}
	for name, value := range map[string]string{"namespace": s.Namespace, "name": s.Name, "resource": s.Resource, "subresource": s.Subresource, "group": s.Group, "version": s.Version} {
		if strings.ContainsAny(value, "/%") || value == "." || value == ".." {
			errs = append(errs, field.Invalid(at.Child(name), value, "must be a segment of a path"))
		}
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: explain.Group, Kind: explain.Kind}, "", errs)
	}
	query := url.Values{}
	method := ""
	switch s.Verb {
	case "get", "list", "watch":
		method = http.MethodGet
	case "create":
		method = http.MethodPost
	case "update":
		method = http.MethodPut
	case "patch":
		method = http.MethodPatch
	case "delete", "deletecollection":
		method = http.MethodDelete
	}
	target := s.Path
	if s.Resource != "" {
		target = join("/api", s.Version)
		if s.Group != "" {
			target = join("/apis", s.Group, s.Version)
		}
		if s.Namespace != "" {
			target = join(target, "namespaces", s.Namespace)
		}
		if target = join(target, s.Resource); s.Verb != "list" && s.Verb != "watch" && s.Verb != "deletecollection" {
			target = join(target, s.Name, s.Subresource)
		} else {
			setSelectors(query, s)
		}
		switch s.Verb {
		case "watch":
			query.Set("watch", "true")
			t.until = "authorization" // nobody follows it
		case "list":
			query.Set("limit", "1")
		case "create", "update":
			query.Set("dryRun", metav1.DryRunAll)
			if len(s.Object) == 0 {
				t.until = "authorization"
			}
		case "patch", "delete", "deletecollection":
			query.Set("dryRun", metav1.DryRunAll)
		}
		if applies := s.Verb == "patch" && s.ContentType == string(types.ApplyYAMLPatchType); s.FieldManager != "" || applies {
			query.Set("fieldManager", cmp.Or(s.FieldManager, explainer))
		}
		if s.Force {
			query.Set("force", "true")
		}
	} else {
		method = strings.ToUpper(s.Verb)
	}
	if method == "" {
		target, method = "", http.MethodGet
	}
	text := []byte(s.Object)
	if s.Verb == "patch" && len(text) == 0 {
		text = []byte("{}")
	}
	q, err := http.NewRequestWithContext(ctx, method, "/", bytes.NewReader(text))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	q.URL = &url.URL{Path: target, RawQuery: query.Encode()}
	if target != "" && s.Resource != "" && !p.asks(q, s) {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: explain.Group, Kind: explain.Kind}, "", field.ErrorList{
			field.Invalid(at, s.Verb+" "+target, "no request asks for this: its path is that of another one")})
	}
	q.Header.Set("Accept", "application/json")
	q.Header.Set("User-Agent", explainer)
	switch {
	case s.ContentType != "":
		q.Header.Set("Content-Type", s.ContentType)
	case s.Verb == "patch":
		q.Header.Set("Content-Type", "application/merge-patch+json")
	default:
		q.Header.Set("Content-Type", "application/json")
	}
	set := func(header, value string) {
		if value != "" {
			q.Header.Add(header, value)
		}
	}
	set(authenticationv1.ImpersonateUserHeader, s.User)
	set(authenticationv1.ImpersonateUIDHeader, s.UID)
	for _, g := range s.Groups {
		set(authenticationv1.ImpersonateGroupHeader, g)
	}
	for k, values := range s.Extra {
		for _, v := range values {
			set(authenticationv1.ImpersonateUserExtraHeaderPrefix+url.PathEscape(k), v)
		}
	}
	return q, nil
}

// setSelectors adds those of a request for many: its name is one, too.
func setSelectors(query url.Values, s *explain.Spec) {
	var of []string
	if s.Name != "" {
		of = append(of, fields.OneTermEqualSelector("metadata.name", s.Name).String())
	}
	if s.FieldSelector != "" {
		of = append(of, s.FieldSelector)
	}
	if len(of) > 0 {
		query.Set("fieldSelector", strings.Join(of, ","))
	}
	if s.LabelSelector != "" {
		query.Set("labelSelector", s.LabelSelector)
	}
}

// ofResource tells whether a path is that of a resource, now or below /at.
func (p *Pipeline) ofResource(path string) bool {
	r := &Request{HTTP: &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}}}
	if p.cutMoment(r) != nil {
		return false // it is of nothing, and that is explained
	}
	info, err := p.requestInfo.NewRequestInfo(r.HTTP)
	return err != nil || info.IsResourceRequest
}

// asks tells whether a request is taken for what a spec says. Some paths are not: those below
// namespaces, and below watch, mean something else. A selector may be of a name.
func (p *Pipeline) asks(q *http.Request, s *explain.Spec) bool {
	i, err := p.requestInfo.NewRequestInfo(q)
	if err != nil || i.Verb != s.Verb || i.APIGroup != s.Group || i.APIVersion != s.Version || i.Resource != s.Resource || i.Subresource != s.Subresource {
		return false
	}
	if i.Name != s.Name && (s.Name != "" || s.FieldSelector == "") {
		return false
	}
	return i.Namespace == s.Namespace || s.Namespace == "" && s.Group == "" && s.Resource == "namespaces" && i.Namespace == s.Name
}

// join adds segments to a path, but for empty ones.
func join(to string, segments ...string) string {
	for _, s := range segments {
		if s != "" {
			to += "/" + s
		}
	}
	return to
}

// onlyAuthorize explains what no request can ask for: verbs that other rules look at.
func (p *Pipeline) onlyAuthorize(ctx context.Context, r *Request, s *explain.Spec) error {
	r.Info = &request.RequestInfo{IsResourceRequest: s.Resource != "", Path: s.Path, Verb: s.Verb, APIGroup: s.Group, APIVersion: s.Version,
		Resource: s.Resource, Subresource: s.Subresource, Namespace: s.Namespace, Name: s.Name}
	r.trace.until = "authorization"
	for _, s := range []stage{{"authentication", always, (*Pipeline).authentication}, {"impersonation", always, (*Pipeline).impersonation}, {"authorization", always, (*Pipeline).authorized}} {
		r.Stage = s.name
		err := s.run(p, ctx, r)
		r.said(err)
		if err != nil {
			return err
		}
	}
	return nil
}

// said writes down what a stage made of an explained request.
func (r *Request) said(err error) {
	if r.trace == nil {
		return
	}
	s := explain.Stage{Name: r.Stage, Verdict: explain.Passed}
	switch r.Stage {
	case "connection":
		s.Message = r.HTTP.Method + " " + r.HTTP.URL.Path
	case "authentication":
		s.Message = userText(r.Requester)
	case "impersonation":
		if s.Message = "as oneself"; r.User != r.Requester {
			s.Message = "as " + userText(r.User)
		}
	case "authorization", "conditions":
		if d := r.Decision; d != nil && (r.Stage == "authorization" || r.authorized.Pending != nil) {
			s.Rule, s.Source, s.Message = d.Rule, d.Source, d.Reason
			if d.Pending != nil {
				s.Verdict = explain.Open
			}
		}
		if r.Stage == "authorization" && r.Tip.Policy != nil && !r.trace.brief {
			r.trace.considered = r.Tip.Policy.Consider(&r.Access, r.authorized)
		}
	case "commit":
		if r.Body != nil && r.Body.Options.DryRun {
			s.Message = "a dry run: nothing is written"
		}
	}
	if err != nil {
		st, _ := status.From(err)
		s.Verdict, s.Message = explain.Refused, st.Message
		if r.Stage == "validation" && st.Details != nil && len(st.Details.Causes) > 0 {
			s.Rule, s.Source = string(st.Details.Causes[0].Type), st.Details.Causes[0].Field
		}
		if beyond := new(read.BeyondError); errors.As(err, &beyond) {
			s.Rule, s.Source = beyond.Decision.Rule, beyond.Decision.Source
		}
	}
	for _, c := range r.trace.considered {
		s.Considered = append(s.Considered, explain.Considered(c))
	}
	r.trace.considered = nil
	r.trace.forget(s.Name) // one that is run again says it anew, and so do those behind it
	r.trace.stages = append(r.trace.stages, s)
}

// forget drops what a stage said, and those behind it.
func (t *trace) forget(stage string) {
	if i := slices.IndexFunc(t.stages, func(x explain.Stage) bool { return x.Name == stage }); i >= 0 {
		t.stages = t.stages[:i]
	}
}

// ends tells whether nothing more is asked about an explained request.
func (r *Request) ends() bool { return r.trace != nil && r.trace.until == r.Stage }

func userText(u user.Info) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf("%s, in groups %s", u.GetName(), strings.Join(u.GetGroups(), ", "))
}

// verdict sums up a request that has come to its end.
func (p *Pipeline) verdict(r *Request, err error) explain.Status {
	s := explain.Status{Allowed: err == nil}
	if r.Tip != nil {
		s.Revision = r.Tip.Revision()
		if r.Tip.Policy != nil {
			s.Policy = r.Tip.Policy.DigestString()
		}
	}
	if err != nil {
		st, _ := status.From(err)
		s.Code, s.Reason, s.Message = int(st.Code), string(st.Reason), st.Message
	} else if r.Decision != nil && r.Decision.Pending != nil {
		s.Allowed, s.Message = false, r.Decision.Reason
	}
	return s
}

// remember keeps why a request was refused.
func (p *Pipeline) remember(r *Request, err error) {
	if r.Info == nil || r.Requester == nil {
		return // it has no name, or nobody asked in particular
	}
	e := &explain.Explanation{TypeMeta: metav1.TypeMeta{APIVersion: explain.Group + "/" + explain.Version, Kind: explain.Kind}}
	e.Name, e.CreationTimestamp = r.AuditID, metav1.NewTime(r.Received)
	i, u := r.Info, r.User
	if u == nil {
		u = r.Requester
	}
	e.Spec = explain.Spec{Verb: i.Verb, User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
	if i.IsResourceRequest {
		e.Spec.Group, e.Spec.Version, e.Spec.Resource, e.Spec.Subresource, e.Spec.Namespace, e.Spec.Name = i.APIGroup, i.APIVersion, i.Resource, i.Subresource, i.Namespace, i.Name
		e.Spec.FieldSelector, e.Spec.LabelSelector = i.FieldSelector, i.LabelSelector
	} else {
		e.Spec.Path = i.Path
	}
	e.Status = p.verdict(r, err)
	last := index(r.Stage)
	r.trace = &trace{brief: true}
	for n := range last + 1 {
		if s := path[n]; s.when == always || (s.when == writes) == r.Write {
			if r.Stage = s.name; n < last {
				r.said(nil)
			} else {
				r.said(err)
			}
		}
	}
	e.Status.Stages = r.trace.stages
	p.refusals.Add(e)
}

// explained says what became of a request, by its audit id: from memory if it was refused,
// from the log if it was a write. Clients choose these ids, so both may be there: then it is
// the write that is told of.
func (p *Pipeline) explained(ctx context.Context, r *Request) (*explain.Explanation, error) {
	if err := p.See(ctx, r, ""); err != nil {
		return nil, err
	}
	if err := p.history.Reach(ctx, r.Tip.Revision()); err != nil {
		return nil, err
	}
	refusal, looked := p.refusals.Find(r.Info.Name), 0
	for h, err := range p.replays.InTurns(ctx, p.history.Before(ctx, history.Filter{}, r.Tip.Revision())) {
		if err != nil {
			return nil, err
		}
		if looked++; looked > changesLookedAt && refusal != nil {
			break
		}
		if h.Meta.GetRequest().GetAuditId() == r.Info.Name {
			return explain.Written(changes.From(h)), nil
		}
	}
	if refusal != nil {
		return refusal, nil
	}
	err := apierrors.NewNotFound(r.Resource(), r.Info.Name)
	err.ErrStatus.Message = fmt.Sprintf("no write in the log has the audit id %q, and none of the last %d refusals of this replica; reads that were answered are not kept", r.Info.Name, remembered)
	return nil, err
}

