"""Between messages and the domain."""

from __future__ import annotations

from sless.runtime_manager.v1 import runtime_manager_pb2 as pb

from sless_runtime_manager.domain import InstanceBatch, InstanceSet, ServingInstance


def batch_message(batch: InstanceBatch) -> pb.WatchInstancesResponse:
    """One batch of changed sets."""
    return pb.WatchInstancesResponse(
        revision=batch.revision, reset=batch.reset, sets=[_set_message(changed) for changed in batch.sets]
    )


def _set_message(changed: InstanceSet) -> pb.InstanceSet:
    return pb.InstanceSet(
        function_uid=changed.function_uid,
        generation=changed.generation,
        instances=[_instance_message(instance) for instance in changed.instances],
        failure=changed.failure,
        starting=[_instance_message(instance) for instance in changed.starting],
    )


def _instance_message(instance: ServingInstance) -> pb.Instance:
    return pb.Instance(
        instance_id=instance.instance_id,
        address=instance.address,
        max_concurrency=instance.max_concurrency,
        version=instance.version,
    )
