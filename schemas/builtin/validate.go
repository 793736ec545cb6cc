package builtin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns the violations of Kubernetes' rules for a built-in kind that the schema does not
// express, with Kubernetes' wording. old is nil on create. Fields of the wrong type are skipped, because
// the schema rejects them.
func Validate(kind string, obj, old map[string]any) field.ErrorList {
	if validate := validations[kind]; validate != nil {
		return validate(obj, old)
	}
	return nil
}

var validations = map[string]func(obj, old map[string]any) field.ErrorList{
	"Namespace": validateNamespace,
	"ConfigMap": validateConfigMap,
	"Secret":    validateSecret,
	"Event":     validateEvent,
	"Lease":     validateLease,
}

// maxData is the maximum total size in bytes of the entries of a ConfigMap or a Secret, without their
// keys.
const maxData = 1 << 20

// text returns the string at the path, or "".
func text(obj map[string]any, path ...string) string {
	for _, name := range path[:len(path)-1] {
		obj = entries(obj, name)
	}
	s, _ := obj[path[len(path)-1]].(string)
	return s
}

// frozen rejects changes to the named fields if the old object is immutable.
func frozen(obj, old map[string]any, fields ...string) field.ErrorList {
	const detail = "field is immutable when `immutable` is set"
	if was, _ := old["immutable"].(bool); !was {
		return nil
	}
	var errs field.ErrorList
	if is, _ := obj["immutable"].(bool); !is {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), detail))
	}
	for _, name := range fields {
		if a, b := entries(obj, name), entries(old, name); len(a)+len(b) > 0 && !reflect.DeepEqual(a, b) {
			errs = append(errs, field.Forbidden(field.NewPath(name), detail))
		}
	}
	return errs
}

// size returns the total size of the entries in bytes.
func size(data map[string]any, encoded bool) int {
	total := 0
	for _, v := range data {
		text, _ := v.(string)
		if !encoded {
			total += len(text)
		} else if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			total += len(raw)
		}
	}
	return total
}

// validateKeys checks that the keys of the entries are valid file names.
func validateKeys(data map[string]any, path *field.Path) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, message := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(path.Key(key), key, message))
		}
	}
	return errs
}

func validateConfigMap(obj, old map[string]any) field.ErrorList {
	errs := frozen(obj, old, "data", "binaryData")
	data, binary := entries(obj, "data"), entries(obj, "binaryData")
	errs = append(errs, validateKeys(data, field.NewPath("data"))...)
	errs = append(errs, validateKeys(binary, field.NewPath("binaryData"))...)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if _, both := binary[key]; both {
			errs = append(errs,
				field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"),
				field.Invalid(field.NewPath("binaryData").Key(key), key, "duplicate of key present in data"))
		}
	}
	if size(data, false)+size(binary, true) > maxData {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxData))
	}
	return errs
}

// The keys that secrets of some types must have.
const (
	dockercfg        = ".dockercfg"
	dockerConfigJSON = ".dockerconfigjson"
	username         = "username"
	password         = "password"
	sshPrivateKey    = "ssh-privatekey"
	tlsCertificate   = "tls.crt"
	tlsPrivateKey    = "tls.key"

	serviceAccountName = "kubernetes.io/service-account.name"
)

func validateSecret(obj, old map[string]any) field.ErrorList {
	var errs field.ErrorList
	if old != nil {
		if is := text(obj, "type"); is != text(old, "type") {
			errs = append(errs, field.Invalid(field.NewPath("type"), is, "field is immutable"))
		}
		errs = append(errs, frozen(obj, old, "data")...)
	}
	path := field.NewPath("data")
	data := entries(obj, "data")
	errs = append(errs, validateKeys(data, path)...)
	if size(data, true) > maxData {
		errs = append(errs, field.TooLong(path, "", maxData))
	}
	require := func(key string) bool {
		if _, ok := data[key]; !ok {
			errs = append(errs, field.Required(path.Key(key), ""))
			return false
		}
		return true
	}
	switch text(obj, "type") {
	case "kubernetes.io/service-account-token":
		if text(obj, "metadata", "annotations", serviceAccountName) == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(serviceAccountName), ""))
		}
	case "kubernetes.io/dockercfg":
		if require(dockercfg) {
			errs = append(errs, validateJSON(data, dockercfg, path)...)
		}
	case "kubernetes.io/dockerconfigjson":
		if require(dockerConfigJSON) {
			errs = append(errs, validateJSON(data, dockerConfigJSON, path)...)
		}
	case "kubernetes.io/basic-auth":
		_, name := data[username]
		_, word := data[password]
		if !name && !word {
			require(username)
			require(password)
		}
	case "kubernetes.io/ssh-auth":
		if text(data, sshPrivateKey) == "" {
			errs = append(errs, field.Required(path.Key(sshPrivateKey), ""))
		}
	case "kubernetes.io/tls":
		require(tlsCertificate)
		require(tlsPrivateKey)
	}
	return errs
}

// validateJSON checks that the entry is a JSON object. The error does not show its content.
func validateJSON(data map[string]any, key string, path *field.Path) field.ErrorList {
	raw, err := base64.StdEncoding.DecodeString(text(data, key))
	if err != nil {
		return nil // the schema rejects it
	}
	if err := json.Unmarshal(raw, new(map[string]any)); err != nil {
		return field.ErrorList{field.Invalid(path.Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}

// standardFinalizers are the finalizers without a domain.
var standardFinalizers = []string{"kubernetes", "orphan", "foregroundDeletion"}

func validateNamespace(obj, old map[string]any) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	finalizers, _ := entries(obj, "spec")["finalizers"].([]any)
	for _, f := range finalizers {
		name, ok := f.(string)
		if !ok {
			continue
		}
		for _, message := range validation.IsQualifiedName(name) {
			errs = append(errs, field.Invalid(path, name, message))
		}
		if !strings.Contains(name, "/") && !slices.Contains(standardFinalizers, name) {
			errs = append(errs, field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	phase := text(obj, "status", "phase")
	if old == nil || phase == text(old, "status", "phase") {
		return errs
	}
	switch deleted := text(obj, "metadata", "deletionTimestamp") != ""; {
	case !deleted && phase != "Active":
		errs = append(errs, field.Invalid(field.NewPath("status", "Phase"), phase, "may only be 'Active' if `deletionTimestamp` is empty"))
	case deleted && phase != "Terminating":
		errs = append(errs, field.Invalid(field.NewPath("status", "Phase"), phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"))
	}
	return errs
}

// Limits for events that have eventTime.
const (
	maxEventWord    = 128
	maxEventMessage = 1024
)

// validateEvent applies the rules of core/v1. Events with eventTime have stricter rules than old events
// without it.
func validateEvent(obj, _ map[string]any) field.ErrorList {
	return validateEventAs(obj, "reportingComponent")
}

// validateEventAs validates an event. controller is the name of the controller field in the API version
// of the request.
func validateEventAs(obj map[string]any, controller string) field.ErrorList {
	var errs field.ErrorList
	namespace := text(obj, "metadata", "namespace")
	about := text(obj, "involvedObject", "namespace")
	mismatch := func() {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace"))
	}
	if text(obj, "eventTime") == "" {
		if about == "" && namespace != "" && namespace != "default" || about != "" && about != namespace {
			mismatch()
		}
		return append(errs, validateEventNamespace(namespace)...)
	}
	if about == "" && namespace != "default" && namespace != "kube-system" {
		mismatch()
	}
	limited := func(name string, limit int, required bool) {
		switch s := text(obj, name); {
		case s == "" && required:
			errs = append(errs, field.Required(field.NewPath(name), ""))
		case len(s) > limit:
			errs = append(errs, field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %d characters", limit)))
		}
	}
	component := text(obj, "reportingComponent")
	if component == "" {
		errs = append(errs, field.Required(field.NewPath(controller), ""))
	}
	for _, message := range validation.IsQualifiedName(component) {
		errs = append(errs, field.Invalid(field.NewPath(controller), component, message))
	}
	limited("reportingInstance", maxEventWord, true)
	limited("action", maxEventWord, true)
	limited("reason", maxEventWord, true)
	limited("message", maxEventMessage, false)
	return append(errs, validateEventNamespace(namespace)...)
}

func validateEventNamespace(namespace string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.IsDNS1123Subdomain(namespace) {
		errs = append(errs, field.Invalid(field.NewPath("namespace"), namespace, message))
	}
	return errs
}

func validateLease(obj, _ map[string]any) field.ErrorList {
	if text(obj, "spec", "preferredHolder") != "" && text(obj, "spec", "strategy") == "" {
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "preferredHolder"), "may only be specified if `strategy` is defined")}
	}
	return nil
}
