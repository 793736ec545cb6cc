package explain

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
	return c.Group == Group && c.Version == Version && c.Resource == Plural
}

// allowedExplanations tells whether there is an explanation at the request's path, and
// whether it takes the method. To create one is to read.
func allowedExplanations(c *call.Call) error {
	i := c.Info
	c.Key.Group, c.Key.Resource, c.Key.Name = Group, Plural, i.Name
	if i.Subresource != "" || i.Namespace != "" {
		return status.NotServed(i.Verb, c.Resource())
	}
	if i.Verb != "get" && (i.Verb != "create" || i.Name != "") {
		return apierrors.NewMethodNotSupported(c.Resource(), i.Verb)
	}
	c.Write, c.explains = false, true
	return nil
}

// answerExplanation says what would become of a request, or what became of one.
func (v *service) answerExplanation(ctx context.Context, c *call.Call) error {
	f, err := negotiate.Untyped(c.HTTP)
	if err != nil {
		return err
	}
	if c.Info.Verb == "get" {
		e, err := v.explained(ctx, c)
		if err != nil {
			return err
		}
		return c.WriteJSON(f, http.StatusOK, e)
	}
	if c.trace != nil {
		return apierrors.NewBadRequest("an explanation of an explanation is not to be had")
	}
	if c.Body == nil {
		mediaType, err := negotiate.Body(c.HTTP, negotiate.JSON)
		if err != nil {
			return err
		}
		c.Body = &call.Body{MediaType: mediaType}
		if c.Body.Raw, err = call.ReadLimited(c.HTTP); err != nil {
			return err
		}
	}
	if err := v.See(ctx, c, ""); err != nil {
		return err
	}
	e := new(Explanation)
	strict, err := kjson.UnmarshalStrict(c.Body.Raw, e)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", Kind, Version, Kind, err))
	}
	if e.Kind != Kind || e.APIVersion != Group+"/"+Version {
		return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): it is %s, %s", Kind, e.APIVersion, e.Kind))
	}
	if err := v.explain(ctx, c, e); err != nil {
		return err
	}
	return c.WriteJSON(f, http.StatusCreated, e)
}

// trace is what the stages of an explained request said.
type trace struct {
	stages     []Stage
	considered []policy.Considered // by the stage that is running
	until      string              // the last stage that is run; "" for all
	brief      bool                // without what was considered
}

// explain takes the request that is asked about through the pipeline, as a dry run, and
// writes down what each stage says: there is no second set of rules that could differ.
func (v *service) explain(ctx context.Context, asker *Request, e *Explanation) error {
	t := &trace{}
	ctx = policy.Explain(ctx)
	q, err := v.explainedRequest(ctx, &e.Spec, t)
	if err != nil {
		return err
	}
	w := &call.Discard{header: http.Header{}}
	inner := &Request{HTTP: q, W: &call.Response{ResponseWriter: w}, AuditID: asker.AuditID, Received: asker.Received, Requester: asker.User, Tip: asker.Tip, Confirmed: asker.Confirmed, trace: t}
	if q.URL.Path == "" {
		err = v.onlyAuthorize(ctx, inner, &e.Spec)
	} else {
		err = v.take(inner, "connection")
	}
	if inner.Cancel != nil {
		inner.Cancel()
	}
	e.Status = v.verdict(inner, err)
	if e.Status.Stages = t.stages; err == nil && t.until != "" {
		e.Status.Code = 0
	} else if err == nil {
		e.Status.Code = inner.W.Code
	}
	return nil
}

// explainedRequest is the request that is asked about. One with a verb that is none of
// HTTP's has no path.
func (v *service) explainedRequest(ctx context.Context, s *Spec, t *trace) (*http.Request, error) {
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
	if s.Path != "" && v.ofResource(s.Path) {
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
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: Group, Kind: Kind}, "", errs)
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
	if target != "" && s.Resource != "" && !v.asks(q, s) {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: Group, Kind: Kind}, "", field.ErrorList{
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
func setSelectors(query url.Values, s *Spec) {
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
func (v *service) ofResource(path string) bool {
	r := &Request{HTTP: &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}}}
	if v.cutMoment(c) != nil {
		return false // it is of nothing, and that is explained
	}
	info, err := v.requestInfo.NewRequestInfo(c.HTTP)
	return err != nil || info.IsResourceRequest
}

// asks tells whether a request is taken for what a spec says. Some paths are not: those below
// namespaces, and below watch, mean something else. A selector may be of a name.
func (v *service) asks(q *http.Request, s *Spec) bool {
	i, err := v.requestInfo.NewRequestInfo(q)
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
func (v *service) onlyAuthorize(ctx context.Context, c *call.Call, s *Spec) error {
	c.Info = &request.RequestInfo{IsResourceRequest: s.Resource != "", Path: s.Path, Verb: s.Verb, APIGroup: s.Group, APIVersion: s.Version,
		Resource: s.Resource, Subresource: s.Subresource, Namespace: s.Namespace, Name: s.Name}
	c.trace.until = "authorization"
	for _, s := range []stage{{"authentication", always, (*Pipeline).authentication}, {"impersonation", always, (*Pipeline).impersonation}, {"authorization", always, (*Pipeline).authorized}} {
		c.Stage = s.name
		err := s.run(p, ctx, r)
		c.said(err)
		if err != nil {
			return err
		}
	}
	return nil
}

// said writes down what a stage made of an explained request.
func said(c *call.Call, err error) {
	if c.trace == nil {
		return
	}
	s := Stage{Name: c.Stage, Verdict: Passed}
	switch c.Stage {
	case "connection":
		s.Message = c.HTTP.Method + " " + c.HTTP.URL.Path
	case "authentication":
		s.Message = userText(c.Requester)
	case "impersonation":
		if s.Message = "as oneself"; c.User != c.Requester {
			s.Message = "as " + userText(c.User)
		}
	case "authorization", "conditions":
		if d := c.Decision; d != nil && (c.Stage == "authorization" || c.authorized.Pending != nil) {
			s.Rule, s.Source, s.Message = d.Rule, d.Source, d.Reason
			if d.Pending != nil {
				s.Verdict = Open
			}
		}
		if c.Stage == "authorization" && c.Tip.Policy != nil && !c.trace.brief {
			c.trace.considered = c.Tip.Policy.Consider(&c.Access, c.authorized)
		}
	case "commit":
		if c.Body != nil && c.Body.Options.DryRun {
			s.Message = "a dry run: nothing is written"
		}
	}
	if err != nil {
		st, _ := status.From(err)
		s.Verdict, s.Message = Refused, st.Message
		if c.Stage == "validation" && st.Details != nil && len(st.Details.Causes) > 0 {
			s.Rule, s.Source = string(st.Details.Causes[0].Type), st.Details.Causes[0].Field
		}
		if beyond := new(read.BeyondError); errors.As(err, &beyond) {
			s.Rule, s.Source = beyond.Decision.Rule, beyond.Decision.Source
		}
	}
	for _, c := range c.trace.considered {
		s.Considered = append(s.Considered, Considered(c))
	}
	c.trace.considered = nil
	c.trace.forget(s.Name) // one that is run again says it anew, and so do those behind it
	c.trace.stages = append(c.trace.stages, s)
}

// forget drops what a stage said, and those behind it.
func (t *trace) forget(stage string) {
	if i := slices.IndexFunc(t.stages, func(x Stage) bool { return x.Name == stage }); i >= 0 {
		t.stages = t.stages[:i]
	}
}

// ends tells whether nothing more is asked about an explained request.
func ends(c *call.Call) bool { return c.trace != nil && c.trace.until == c.Stage }

func userText(u user.Info) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf("%s, in groups %s", u.GetName(), strings.Join(u.GetGroups(), ", "))
}

// verdict sums up a request that has come to its end.
func (v *service) verdict(c *call.Call, err error) Status {
	s := Status{Allowed: err == nil}
	if c.Tip != nil {
		s.Revision = c.Tip.Revision()
		if c.Tip.Policy != nil {
			s.Policy = c.Tip.Policy.DigestString()
		}
	}
	if err != nil {
		st, _ := status.From(err)
		s.Code, s.Reason, s.Message = int(st.Code), string(st.Reason), st.Message
	} else if c.Decision != nil && c.Decision.Pending != nil {
		s.Allowed, s.Message = false, c.Decision.Reason
	}
	return s
}

// remember keeps why a request was refused.
func (v *service) remember(c *call.Call, err error) {
	if c.Info == nil || c.Requester == nil {
		return // it has no name, or nobody asked in particular
	}
	e := &Explanation{TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: Kind}}
	e.Name, e.CreationTimestamp = c.AuditID, metav1.NewTime(c.Received)
	i, u := c.Info, c.User
	if u == nil {
		u = c.Requester
	}
	e.Spec = Spec{Verb: i.Verb, User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
	if i.IsResourceRequest {
		e.Spec.Group, e.Spec.Version, e.Spec.Resource, e.Spec.Subresource, e.Spec.Namespace, e.Spec.Name = i.APIGroup, i.APIVersion, i.Resource, i.Subresource, i.Namespace, i.Name
		e.Spec.FieldSelector, e.Spec.LabelSelector = i.FieldSelector, i.LabelSelector
	} else {
		e.Spec.Path = i.Path
	}
	e.Status = v.verdict(c, err)
	last := index(c.Stage)
	c.trace = &trace{brief: true}
	for n := range last + 1 {
		if s := path[n]; s.when == always || (s.when == writes) == c.Write {
			if c.Stage = s.name; n < last {
				c.said(nil)
			} else {
				c.said(err)
			}
		}
	}
	e.Status.Stages = c.trace.stages
	v.refusals.Add(e)
}

// explained says what became of a request, by its audit id: from memory if it was refused,
// from the log if it was a write. Clients choose these ids, so both may be there: then it is
// the write that is told of.
func (v *service) explained(ctx context.Context, c *call.Call) (*Explanation, error) {
	if err := v.See(ctx, c, ""); err != nil {
		return nil, err
	}
	if err := v.History.Reach(ctx, c.Tip.Revision()); err != nil {
		return nil, err
	}
	refusal, looked := v.refusals.Find(c.Info.Name), 0
	for h, err := range v.Replays.InTurns(ctx, v.History.Before(ctx, history.Filter{}, c.Tip.Revision())) {
		if err != nil {
			return nil, err
		}
		if looked++; looked > changesLookedAt && refusal != nil {
			break
		}
		if h.Meta.GetRequest().GetAuditId() == c.Info.Name {
			return Written(changes.From(h)), nil
		}
	}
	if refusal != nil {
		return refusal, nil
	}
	err := apierrors.NewNotFound(c.Resource(), c.Info.Name)
	err.ErrStatus.Message = fmt.Sprintf("no write in the log has the audit id %q, and none of the last %d refusals of this replica; reads that were answered are not kept", c.Info.Name, remembered)
	return nil, err
}

