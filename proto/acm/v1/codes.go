package acmv1

import (
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// codesOf reads the dotted texts from an enum's options.
func codesOf(e protoreflect.Enum) map[protoreflect.EnumNumber]string {
	values := e.Descriptor().Values()
	codes := make(map[protoreflect.EnumNumber]string, values.Len())
	for i := range values.Len() {
		v := values.Get(i)
		code, ok := proto.GetExtension(v.Options(), E_Code).(string)
		if !ok {
			code = ""
		}
		codes[v.Number()] = code
	}
	return codes
}

func numbersOf(codes map[protoreflect.EnumNumber]string) map[string]protoreflect.EnumNumber {
	numbers := make(map[string]protoreflect.EnumNumber, len(codes))
	for n, c := range codes {
		if c != "" {
			numbers[c] = n
		}
	}
	return numbers
}

// table holds both directions of one enum. It is filled at first use, because the descriptors are
// registered only after this package's variables are initialized.
type table struct {
	codes   map[protoreflect.EnumNumber]string
	numbers map[string]protoreflect.EnumNumber
}

func tableOf(e protoreflect.Enum) func() table {
	return sync.OnceValue(func() table {
		codes := codesOf(e)
		return table{codes: codes, numbers: numbersOf(codes)}
	})
}

var (
	operationTypes = tableOf(OperationType(0))
	stages         = tableOf(Stage(0))
	instanceStates = tableOf(InstanceState(0))
	verdicts       = tableOf(Verdict(0))
	reasons        = tableOf(ReasonCode(0))
)

// Code is the dotted text of the reason code as conditions, metrics and logs show it; "" if unspecified or unknown.
func (c ReasonCode) Code() string { return reasons().codes[protoreflect.EnumNumber(c)] }

// Code is the type as policies and people write it, for example "scale-out"; "" if unspecified or unknown.
func (t OperationType) Code() string { return operationTypes().codes[protoreflect.EnumNumber(t)] }

// Code is the stage as policies and people write it, for example "remove"; "" if unspecified or unknown.
func (s Stage) Code() string { return stages().codes[protoreflect.EnumNumber(s)] }

// Code is the state's name, for example "Waiting"; "" if unspecified or unknown.
func (s InstanceState) Code() string { return instanceStates().codes[protoreflect.EnumNumber(s)] }

// Code is the verdict's name, for example "approve"; "" if unspecified or unknown.
func (v Verdict) Code() string { return verdicts().codes[protoreflect.EnumNumber(v)] }

// OperationTypeOf is the type with that code; unspecified when there is none.
func OperationTypeOf(code string) OperationType { return OperationType(operationTypes().numbers[code]) }

// StageOf is the stage with that code; unspecified when there is none.
func StageOf(code string) Stage { return Stage(stages().numbers[code]) }

// InstanceStateOf is the state with that code; unspecified when there is none.
func InstanceStateOf(code string) InstanceState { return InstanceState(instanceStates().numbers[code]) }

// VerdictOf is the verdict with that code; unspecified when there is none.
func VerdictOf(code string) Verdict { return Verdict(verdicts().numbers[code]) }
