// Package apiservices shows which server answers each API group and version, as Kubernetes does: apiregistration.k8s.io/v1, kind
// APIService. They follow from the policy and are not stored. Those of this server itself are local, and always available. Those of other
// servers say whether the server was available when this one last looked.
package apiservices

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"stele.dev/stele/core/aggregation"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// The names of the API. It is read only.
const (
	Group   = "apiregistration.k8s.io"
	Version = "v1"
	Kind    = "APIService"
	Plural  = "apiservices"
)

// URLAnnotation is the annotation with the address of the server, and SourceAnnotation that with its place in the policy.
const (
	URLAnnotation    = "policy.stele.dev/url"
	SourceAnnotation = "policy.stele.dev/source"
)

// service answers calls.
type service struct {
	*read.Reader
	servers *aggregation.Servers // nil if there are none
	local   func(*policy.Policy) []discovery.Resource
}

// New returns the virtual resource. local returns what this server itself serves under a policy.
func New(rd *read.Reader, servers *aggregation.Servers, local func(*policy.Policy) []discovery.Resource) *catalog.Resource {
	v := &service{rd, servers, local}
	r := discovery.NewResource(Group, Version, Kind, Plural, "get", "list", "watch")
	r.Categories = []string{"api-extensions"}
	return &catalog.Resource{Resource: r, Object: func() any { return apiregistrationv1.APIService{} }, Past: catalog.Refuses, Serve: v.serve}
}

var form = call.NewBuiltinForm(Kind, Group+"/"+Version)

func (v *service) serve(ctx context.Context, c *call.Call) error {
	f, err := c.Format()
	if err != nil {
		return err
	}
	selected, err := c.SelectsByName()
	if err != nil {
		return err
	}
	if c.Info.Verb == "watch" {
		return v.watch(ctx, c, selected)
	}
	if err := v.See(ctx, c, ""); err != nil {
		return err
	}
	list := v.objects(c.Tip, selected)
	if len(list) == 0 && c.Info.Verb != "list" {
		return status.NotFound(c.Resource(), c.Info.Name)
	}
	return call.Answer(c, form, f, http.StatusOK, list...)
}

// objects returns the APIServices of a policy, by name.
func (v *service) objects(tip *commit.Tip, selected func(string, map[string]string) bool) (list []apiregistrationv1.APIService) {
	for _, o := range v.all(tip) {
		if selected(o.Name, o.Labels) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b apiregistrationv1.APIService) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (v *service) all(tip *commit.Tip) (list []apiregistrationv1.APIService) {
	seen := map[metav1.GroupVersion]bool{}
	for _, r := range v.local(tip.Policy) {
		gv := metav1.GroupVersion{Group: r.Group, Version: r.Version}
		if seen[gv] {
			continue
		}
		seen[gv] = true
		list = append(list, newObject(tip, gv, localPriority(gv), localAvailability))
	}
	if v.servers == nil {
		return list
	}
	for _, st := range v.servers.Statuses(tip.Policy) {
		a := st.Aggregate
		o := newObject(tip, metav1.GroupVersion{Group: a.Group, Version: st.Version}, priority{int32(a.GroupPriority), int32(a.VersionPriority)}, st.Availability)
		o.Spec.CABundle = []byte(a.CABundle)
		o.Spec.Service = &apiregistrationv1.ServiceReference{Name: a.Name(), Port: portOf(a)}
		o.Annotations = map[string]string{URLAnnotation: a.URL, SourceAnnotation: a.Source.String()}
		list = append(list, o)
	}
	return list
}

// portOf returns the port of a server.
func portOf(a *policy.Aggregate) *int32 {
	port := int32(443)
	if u, err := url.Parse(a.URL); err == nil {
		if n, err := strconv.ParseInt(u.Port(), 10, 32); err == nil {
			port = int32(n)
		}
	}
	return &port
}

// localAvailability is that of the groups of this server, as in Kubernetes.
var localAvailability = aggregation.Availability{Available: true, Reason: "Local", Message: "Local APIServices are always available"}

// priority is the priority of a group, and of a version in it.
type priority struct{ group, version int32 }

// localPriority returns the priorities of a group of this server, as Kubernetes has them for its own and for those of definitions.
func localPriority(gv metav1.GroupVersion) priority {
	switch {
	case gv.Group == "":
		return priority{18000, 1}
	case strings.HasSuffix(gv.Group, ".k8s.io"):
		return priority{17000, 15}
	}
	return priority{1000, 100}
}

// newObject returns an APIService.
func newObject(tip *commit.Tip, gv metav1.GroupVersion, p priority, is aggregation.Availability) apiregistrationv1.APIService {
	name := gv.Version + "." + gv.Group
	condition := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: is.Reason, Message: is.Message, LastTransitionTime: metav1.NewTime(is.Since),
	}
	if is.Available {
		condition.Status = apiregistrationv1.ConditionTrue
	}
	return apiregistrationv1.APIService{
		TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(policy.UIDOf(Group, Plural, "", name)), ResourceVersion: strconv.FormatUint(tip.Revision(), 10),
		},
		Spec:   apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.group, VersionPriority: p.version},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{condition}},
	}
}

// watchEvery is how often a watch looks whether something has changed: what is available is not in the log.
const watchEvery = time.Second

// watch sends the APIServices, and then those that change. It always begins with all of them, because what is available has no revisions.
func (v *service) watch(ctx context.Context, c *call.Call, selected func(string, map[string]string) bool) error {
	o := &internalversion.ListOptions{}
	options := metav1.ListOptions{}
	if err := call.DecodeQuery(c, &options); err != nil {
		return err
	}
	o.TimeoutSeconds = options.TimeoutSeconds
	s, ctx, err := v.NewStream(ctx, c)
	if err != nil {
		return err
	}
	if err := v.See(ctx, c, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, read.WatchTimeout(o))
	defer cancel()
	s.Begin()
	defer s.Count()()
	err = v.follow(ctx, c, s, selected)
	if lost := read.LostCredential(ctx); lost != nil {
		err = lost
	}
	if err != nil {
		return s.Fail(err, c.World().Revision())
	}
	return nil
}

// follow sends what differs from what was sent, until the watch ends.
func (v *service) follow(ctx context.Context, c *call.Call, s *read.Stream, selected func(string, map[string]string) bool) error {
	sent := map[string][]byte{}
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		if err := v.send(c, s, selected, sent); err != nil {
			return err
		}
		if err := s.Flush(); err != nil {
			return err
		}
		c.ReleaseSeats()
		select {
		case <-ticker.C:
		case <-s.Leaving():
			return nil
		case <-ctx.Done():
			return nil
		}
		if _, err := v.StillAllowed(ctx, c); err != nil {
			return err
		}
	}
}

// send sends the events that lead from what was sent to what there is.
func (v *service) send(c *call.Call, s *read.Stream, selected func(string, map[string]string) bool, sent map[string][]byte) error {
	tip := v.Committer.Tip()
	present := map[string]bool{}
	for _, o := range v.objects(tip, selected) {
		present[o.Name] = true
		compared := o
		compared.ResourceVersion = ""
		text, err := json.Marshal(compared)
		if err != nil {
			return err
		}
		was, had := sent[o.Name]
		if had && string(was) == string(text) {
			continue
		}
		sent[o.Name] = text
		kind := "ADDED"
		if had {
			kind = "MODIFIED"
		}
		if err := v.event(c, s, kind, tip, o); err != nil {
			return err
		}
	}
	for name, text := range sent {
		if present[name] {
			continue
		}
		delete(sent, name)
		var o apiregistrationv1.APIService
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		o.ResourceVersion = strconv.FormatUint(tip.Revision(), 10)
		if err := v.event(c, s, "DELETED", tip, o); err != nil {
			return err
		}
	}
	return nil
}

func (v *service) event(c *call.Call, s *read.Stream, kind string, tip *commit.Tip, o apiregistrationv1.APIService) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if text, err = form.As(c, s.Format, metav1.ListMeta{ResourceVersion: strconv.FormatUint(tip.Revision(), 10)}, [][]byte{text}, false); err != nil {
		return err
	}
	return s.Frame(kind, text)
}
