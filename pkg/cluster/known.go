package cluster

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
)

//go:embed known-flags.txt
var knownFlags string

// KnownVersion is the Kubernetes version whose flags CheckFlag knows.
const KnownVersion = "v1.37.2"

// KnownFlags returns the names of a component's flags, nil if it is no component. Of the
// kubelet these are the fields of its configuration, without what is inside of them.
func KnownFlags(component string) []string {
	if component == "kubelet" {
		return fieldNames(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]())
	}
	var names []string
	for line := range strings.Lines(knownFlags) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == component {
			names = append(names, f[1])
		}
	}
	return names
}

// Known says whether a component has a flag; for the kubelet a field of its
// configuration, with a dotted path to one that lies deeper.
func Known(component, name string) bool {
	if component == "kubelet" {
		first, _, _ := strings.Cut(name, ".")
		return slices.Contains(KnownFlags(component), first)
	}
	return slices.Contains(KnownFlags(component), name)
}

// removedFlags are flags that a version of Kubernetes took away, and what rules in their place.
var removedFlags = map[string]string{
	// kubernetes/kubernetes#115840
	"kube-controller-manager pod-eviction-timeout": "it was removed in v1.27; evictions follow default-not-ready-toleration-seconds and default-unreachable-toleration-seconds of kube-apiserver",
	"kube-controller-manager enable-taint-manager": "it was removed in v1.27; pods are always evicted by taints",
	// kubernetes/kubernetes#108476
	"kube-controller-manager experimental-cluster-signing-duration": "it was removed in v1.25; it is called cluster-signing-duration",
}

// kubeletFlags are flags of the kubelet's command line whose field has another name
// (cmd/kubelet/app/options/options.go, AddKubeletConfigFlags). All others have the same
// words.
var kubeletFlags = map[string]string{
	"anonymous-auth":                               "authentication.anonymous.enabled",
	"authentication-token-webhook":                 "authentication.webhook.enabled",
	"authentication-token-webhook-cache-ttl":       "authentication.webhook.cacheTTL",
	"authorization-mode":                           "authorization.mode",
	"authorization-webhook-cache-authorized-ttl":   "authorization.webhook.cacheAuthorizedTTL",
	"authorization-webhook-cache-unauthorized-ttl": "authorization.webhook.cacheUnauthorizedTTL",
	"client-ca-file":                               "authentication.x509.clientCAFile",
	"event-qps":                                    "eventRecordQPS",
	"image-gc-high-threshold":                      "imageGCHighThresholdPercent",
	"image-gc-low-threshold":                       "imageGCLowThresholdPercent",
	"log-flush-frequency":                          "logging.flushFrequency",
	"logging-format":                               "logging.format",
	"manifest-url":                                 "staticPodURL",
	"manifest-url-header":                          "staticPodURLHeader",
	"minimum-image-ttl-duration":                   "imageMinimumGCAge",
	"pod-manifest-path":                            "staticPodPath",
	"pod-max-pids":                                 "podPidsLimit",
	"rotate-server-certificates":                   "serverTLSBootstrap",
	"v":                                            "logging.verbosity",
	"vmodule":                                      "logging.vmodule",
}

// Heir says what rules in the place of a flag that a component does not have: it was removed,
// or it belongs to the kubelet's command line and has a field of the configuration. "" if
// nothing is known of it.
func Heir(component, name string) string {
	if component != "kubelet" {
		return removedFlags[component+" "+name]
	}
	path := kubeletFlags[name]
	for _, f := range KnownFlags(component) {
		if strings.Contains(name, "-") && strings.EqualFold(f, strings.ReplaceAll(name, "-", "")) {
			path = f
		}
	}
	if path == "" {
		return ""
	}
	return "--" + name + " is a flag of its command line; flatline sets the field " + path + " of its configuration"
}

// TakesList says whether a value of a flag may be a list with commas. The flag must be Known.
func TakesList(component, name string) bool {
	if component == "kubelet" {
		t := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
		for field := range strings.SplitSeq(name, ".") {
			t = fieldType(t, field)
			if t == nil {
				return false
			}
		}
		return t.Kind() == reflect.Slice || t.Kind() == reflect.Map
	}
	for line := range strings.Lines(knownFlags) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == component && f[1] == name {
			return slices.Contains(listTypes, f[2])
		}
	}
	return false
}

// listTypes are types of flags that hold several values with commas between them.
var listTypes = []string{"strings", "stringToString", "mapStringString", "colonSeparatedMultimapStringString", "int32Slice", "pattern=N,..."}

// fieldType is the type of a field by its name in a file, nil if there is none.
func fieldType(t reflect.Type, name string) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if n, _, _ := strings.Cut(f.Tag.Get("json"), ","); n == name {
			return f.Type
		}
	}
	return nil
}

// CheckFlag says what is wrong with the value of a flag, by the type that the flag has;
// nil also where the type says nothing. The flag must be Known.
func CheckFlag(component, name, value string) error {
	if component == "kubelet" {
		return checkField(name, value)
	}
	for line := range strings.Lines(knownFlags) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == component && f[1] == name {
			return checkType(f[2], value)
		}
	}
	return fmt.Errorf("%s has no such flag", component)
}

// checkType parses a value as package flag would.
func checkType(typ, value string) error {
	var err error
	switch typ {
	case "duration":
		if _, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("%q is not a duration such as 40s", value)
		}
	case "int", "int32", "Level":
		if _, err = strconv.Atoi(value); err != nil {
			return fmt.Errorf("%q is not a whole number", value)
		}
	case "float", "float32":
		if _, err = strconv.ParseFloat(value, 64); err != nil {
			return fmt.Errorf("%q is not a number", value)
		}
	case "bool":
		if _, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%q is not true or false", value)
		}
	}
	return nil
}

// checkField decodes a value into the kubelet's own type.
func checkField(name, value string) error {
	v, err := yamlValue(value)
	tree := map[string]any{}
	if err == nil {
		err = set(tree, strings.Split(name, "."), v)
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(tree)
	}
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(text, &kubeletv1beta1.KubeletConfiguration{})
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		want := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a text", reflect.Slice: "a list",
			reflect.Map: "fields", reflect.Struct: "fields"}[wrong.Type.Kind()]
		return fmt.Errorf("%q is not %s", value, cmp.Or(want, "a whole number"))
	}
	return fmt.Errorf("%q does not fit: %s", value, strings.TrimPrefix(err.Error(), "json: "))
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
