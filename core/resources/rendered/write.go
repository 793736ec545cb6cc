package rendered

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"

	"github.com/tidwall/gjson"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/wire"
	"stele.dev/stele/core/object/patch"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// write is a write of a rendered kind. It changes nothing. What the policy says already is answered as kube-apiserver answers it: a create
// by 409, an update, patch or apply that changes nothing by 200. So installers find what the policy has. All other writes are refused
// with the place in the policy to change.
type write struct {
	v         *service
	c         *call.Call
	unchanged *objects.Object
}

// Decode finds out whether the write changes anything.
func (w *write) Decode(context.Context) error {
	c, k := w.c, w.v.kind
	name, creates := c.Key.Name, false
	if c.Info.Verb == "create" {
		body, err := w.body()
		if err != nil {
			return err
		}
		name, creates = gjson.GetBytes(body, "metadata.name").String(), true
	}
	there := At(k, c.Tip, c.Tip.Objects).Get(c.Key.Namespace, name)
	var after []byte
	switch c.Info.Verb {
	case "create":
		if name != "" && there != nil {
			return status.AlreadyExists(c.Resource(), name)
		}
	case "update":
		creates = c.CreatesOnUpdate()
		body, err := w.body()
		if err != nil {
			return err
		}
		after = body
	case "patch":
		patchType, err := c.PatchType()
		if err != nil {
			return err
		}
		creates = types.PatchType(patchType) == types.ApplyYAMLPatchType
		if there != nil {
			if after, err = w.patched(types.PatchType(patchType), there.JSON); err != nil {
				return err
			}
		}
	}
	if there != nil && after != nil {
		same, err := w.changesNothing(there.JSON, after)
		if err != nil {
			return err
		}
		if same {
			w.unchanged = there
			return nil
		}
	}
	return w.refusal(k.Find(c.Tip.Policy.Form(), name), name, creates)
}

// body returns the object in the body, as JSON.
func (w *write) body() ([]byte, error) {
	if w.c.Body == nil {
		var err error
		if w.c.Body, err = w.c.ReadJSON(w.c.Kind.GroupVersionKind()); err != nil {
			return nil, err
		}
	}
	return w.c.Body.Raw, nil
}

// patched returns the object that a patch leads to. Nobody owns fields of rendered objects, so an applied configuration is merged.
func (w *write) patched(t types.PatchType, before []byte) ([]byte, error) {
	if w.c.Body == nil {
		raw, err := call.ReadLimited(w.c.HTTP)
		if err != nil {
			return nil, err
		}
		w.c.Body = &call.Body{Raw: raw, MediaType: string(t)}
	}
	gvk, text := w.c.Kind.GroupVersionKind(), w.c.Body.Raw
	if t == types.ApplyYAMLPatchType {
		var err error
		if text, _, err = wire.Decode("application/yaml", text, gvk); err != nil {
			return nil, call.Unfit(gvk, err)
		}
		version, kind := gvk.ToAPIVersionAndKind()
		if said := gjson.GetManyBytes(text, "apiVersion", "kind"); said[0].String() != version || said[1].String() != kind {
			return nil, status.BadRequestf("the applied configuration is %q of %q, and the path is that of %q of %q", said[1], said[0], kind, version)
		}
		t = types.StrategicMergePatchType
	}
	after, _, err := patch.Apply(gvk, t, before, text)
	return after, err
}

// changesNothing reports whether an object is the rendered one, with the defaults of kube-apiserver. Metadata that the server sets does not
// count, nor does status. An object with another uid or resourceVersion is a conflict.
func (w *write) changesNothing(before, after []byte) (bool, error) {
	var objects [2]metav1.Object
	for i, text := range [][]byte{before, after} {
		o := reflect.New(w.v.kind.Type).Interface()
		if err := json.Unmarshal(text, o); err != nil {
			return false, call.Unfit(w.c.Kind.GroupVersionKind(), err)
		}
		setDefaults(o)
		objects[i] = o.(metav1.Object)
	}
	was, is := objects[0], objects[1]
	if version := is.GetResourceVersion(); version != "" && version != was.GetResourceVersion() || is.GetUID() != "" && is.GetUID() != was.GetUID() {
		return false, status.Modified(w.c.Resource(), was.GetName())
	}
	for _, o := range objects {
		annotations := o.GetAnnotations()
		for _, name := range []string{ruleAnnotation, sourceAnnotation, lastApplied} {
			delete(annotations, name)
		}
		meta := metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels(), Annotations: annotations,
			OwnerReferences: o.GetOwnerReferences(), Finalizers: o.GetFinalizers(),
		}
		v := reflect.ValueOf(o).Elem()
		v.FieldByName("ObjectMeta").Set(reflect.ValueOf(meta))
		if s := v.FieldByName("Status"); s.IsValid() {
			s.SetZero()
		}
	}
	return apiequality.Semantic.DeepEqual(was, is), nil
}

// lastApplied is the annotation in which kubectl keeps what it has applied. It is not kept.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// setDefaults sets the defaults of kube-apiserver.
func setDefaults(object any) {
	switch o := object.(type) {
	case *apiextensionsv1.CustomResourceDefinition:
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(o)
	case *rbacv1.ClusterRoleBinding:
		setBindingDefaults(&o.RoleRef, o.Subjects)
	case *rbacv1.RoleBinding:
		setBindingDefaults(&o.RoleRef, o.Subjects)
	case *admissionv1.ValidatingAdmissionPolicy:
		setDefault(&o.Spec.FailurePolicy, admissionv1.Fail)
		if o.Spec.MatchConstraints != nil {
			complete(o.Spec.MatchConstraints)
		}
	case *admissionv1.MutatingAdmissionPolicy:
		setDefault(&o.Spec.FailurePolicy, admissionv1.Fail)
		if o.Spec.MatchConstraints != nil {
			complete(o.Spec.MatchConstraints)
		}
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		if o.Spec.MatchResources != nil {
			complete(o.Spec.MatchResources)
		}
	case *admissionv1.MutatingAdmissionPolicyBinding:
		if o.Spec.MatchResources != nil {
			complete(o.Spec.MatchResources)
		}
	case *flowcontrolv1.FlowSchema:
		if o.Spec.MatchingPrecedence == 0 {
			o.Spec.MatchingPrecedence = 1000
		}
	case *flowcontrolv1.PriorityLevelConfiguration:
		setLevelDefaults(&o.Spec)
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			h := &o.Webhooks[i]
			setWebhookDefaults(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector, &h.TimeoutSeconds, &h.ClientConfig, h.Rules)
		}
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			h := &o.Webhooks[i]
			setDefault(&h.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			setWebhookDefaults(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector, &h.TimeoutSeconds, &h.ClientConfig, h.Rules)
		}
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setBindingDefaults(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if role.APIGroup == "" {
		role.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if s := &subjects[i]; s.APIGroup == "" && s.Kind != rbacv1.ServiceAccountKind {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

func setLevelDefaults(l *flowcontrolv1.PriorityLevelConfigurationSpec) {
	if l.Exempt != nil {
		setDefault(&l.Exempt.NominalConcurrencyShares, 0)
		setDefault(&l.Exempt.LendablePercent, 0)
	}
	if l.Limited == nil {
		return
	}
	setDefault(&l.Limited.NominalConcurrencyShares, 30)
	setDefault(&l.Limited.LendablePercent, 0)
	if q := l.Limited.LimitResponse.Queuing; q != nil {
		q.HandSize, q.Queues = cmp.Or(q.HandSize, 8), cmp.Or(q.Queues, 64)
		q.QueueLengthLimit = cmp.Or(q.QueueLengthLimit, 50)
	}
}

func setWebhookDefaults(failure **admissionv1.FailurePolicyType, match **admissionv1.MatchPolicyType, namespaces, objects **metav1.LabelSelector, timeout **int32, client *admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations) {
	setDefault(failure, admissionv1.Fail)
	setDefault(match, admissionv1.Equivalent)
	setDefault(namespaces, metav1.LabelSelector{})
	setDefault(objects, metav1.LabelSelector{})
	setDefault(timeout, 10)
	if client.Service != nil && client.Service.Port == nil {
		client.Service.Port = ptr.To[int32](443)
	}
	for i := range rules {
		setDefault(&rules[i].Scope, admissionv1.AllScopes)
	}
}

// refusal returns the error of a write to the object of a rule, which is nil if there is none: 404 for a name that does not exist, 403
// that names the line to edit for all others, and for every write that would create an object.
func (w *write) refusal(e *Entry, name string, creates bool) error {
	c, k := w.c, w.v.kind
	says := k.Says + " defined by the policy"
	switch {
	case e == nil && creates:
		return status.Refused(c.Resource(), name, errors.New(says+", not through the API: add it to "+k.Part+", and push that; `stele policy import FILE` writes it"))
	case e == nil && c.Info.Verb != "deletecollection":
		return status.NotFound(c.Resource(), name)
	case e != nil && e.Builtin && e.Replaceable:
		return status.Refused(c.Resource(), name, errors.New(says+", and this is a part of every policy: add one with this name to "+k.Part+", which replaces it, and push that"))
	case e != nil && e.Builtin:
		return status.Refused(c.Resource(), name, errors.New(says+", and this is a part of every policy"))
	}
	where := "the package of " + bundleFile(c.Tip)
	if e != nil && !e.Source.IsZero() {
		where = e.Source.String()
	}
	return status.Refused(c.Resource(), name, errors.New(says+": change "+where+" and push it"))
}

// Validate does nothing: what the policy says is valid.
func (w *write) Validate(context.Context) error { return nil }

// Commit answers with the object that is there.
func (w *write) Commit(context.Context) error {
	return w.v.AnswerObject(w.c, http.StatusOK, w.unchanged.JSON)
}
