// Verdicts says what Istio's admission webhook makes of objects. It reads one JSON document per line,
// {"kind":"…","namespace":"…","name":"…","spec":{…}}, and writes one for each: {"errors":["…"],"warnings":["…"]}.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/validation"
	istiolog "istio.io/istio/pkg/log"
)

type object struct {
	Kind, Namespace, Name string
	Spec                  json.RawMessage
}

type verdict struct {
	Errors   []string `json:"errors,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// kind is an empty message, and what checks it.
type kind struct {
	empty proto.Message
	check validation.ValidateFunc
}

func kinds() map[string]kind {
	return map[string]kind{
		"VirtualService":  {&networking.VirtualService{}, validation.ValidateVirtualService},
		"DestinationRule": {&networking.DestinationRule{}, validation.ValidateDestinationRule},
		"Gateway":         {&networking.Gateway{}, validation.ValidateGateway},
		"ServiceEntry":    {&networking.ServiceEntry{}, validation.ValidateServiceEntry},
		"WorkloadEntry":   {&networking.WorkloadEntry{}, validation.ValidateWorkloadEntry},
		"WorkloadGroup":   {&networking.WorkloadGroup{}, validation.ValidateWorkloadGroup},
		"Sidecar":         {&networking.Sidecar{}, validation.ValidateSidecar},
		"ProxyConfig":     {&networkingv1beta1.ProxyConfig{}, validation.ValidateProxyConfig},
		"Telemetry":       {&telemetry.Telemetry{}, validation.ValidateTelemetry},
	}
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	for _, s := range istiolog.Scopes() { // they write to the standard output
		s.SetOutputLevel(istiolog.NoneLevel)
	}
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	in.Buffer(nil, 16<<20)
	known, encode := kinds(), json.NewEncoder(out)
	for in.Scan() {
		v, err := judge(known, in.Bytes())
		if err != nil {
			return err
		}
		if err := encode.Encode(v); err != nil {
			return fmt.Errorf("writing a verdict: %w", err)
		}
	}
	return errors.Join(in.Err(), out.Flush())
}

func judge(known map[string]kind, line []byte) (verdict, error) {
	var o object
	if err := json.Unmarshal(line, &o); err != nil {
		return verdict{}, fmt.Errorf("reading an object: %w", err)
	}
	k, ok := known[o.Kind]
	if !ok {
		return verdict{}, fmt.Errorf("there is no kind %q", o.Kind)
	}
	spec := proto.Clone(k.empty)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(o.Spec, spec); err != nil {
		return verdict{Errors: []string{err.Error()}}, nil
	}
	return check(k, config.Config{Meta: config.Meta{Namespace: o.Namespace, Name: o.Name}, Spec: spec}), nil
}

// check has a check that does not bear an object count as one that refuses it, as the webhook does.
func check(k kind, c config.Config) (v verdict) {
	defer func() {
		if r := recover(); r != nil {
			v = verdict{Errors: []string{fmt.Sprintf("panic: %v", r)}}
		}
	}()
	warning, err := k.check(c)
	return verdict{Errors: texts(err), Warnings: texts(warning)}
}

func texts(err error) (out []string) {
	var many *multierror.Error
	switch {
	case err == nil:
	case errors.As(err, &many):
		for _, e := range many.Errors {
			out = append(out, e.Error())
		}
	default:
		out = append(out, err.Error())
	}
	return out
}
